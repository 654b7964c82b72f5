"use strict";
// Charts over time that the server drew: their axis in local time, and what draws them
// again with a cursor and zoom. Some pages read that only when a chart is touched.
(() => {
	const { all, themed } = cimeter;
	const SVG = "http://www.w3.org/2000/svg", day = 86400;
	const steps = [1, 5, 15, 30, 60, 120, 300, 900, 1800, 3600, 7200, 14400, 28800, day, 2 * day, 7 * day, 14 * day, 30 * day];
	const two = n => String(n).padStart(2, "0");
	const clock = (t, seconds) => { const d = new Date(1000 * t); return two(d.getHours()) + ":" + two(d.getMinutes()) + (seconds ? ":" + two(d.getSeconds()) : ""); };
	const date = t => new Date(1000 * t).toLocaleDateString("en", { month: "short", day: "numeric" });

	// axis draws the ticks of a figure's time axis, seconds since 1970.
	const axis = (figure, from, to) => {
		const svg = figure.querySelector(".xaxis svg");
		if (!svg || !(to > from)) return;
		svg.replaceChildren();
		const n = Math.max(2, Math.min(7, Math.floor(svg.clientWidth / 80))), step = steps.find(s => s >= (to - from) / n) || 90 * day;
		const off = 60 * new Date(1000 * from).getTimezoneOffset();
		for (let t = Math.ceil((from - off) / step) * step + off; t <= to; t += step) {
			const line = document.createElementNS(SVG, "line"), text = document.createElementNS(SVG, "text"), x = `${100 * (t - from) / (to - from)}%`;
			for (const [k, v] of Object.entries({ x1: x, x2: x, y1: 0, y2: 5 })) line.setAttribute(k, v);
			text.setAttribute("x", x);
			text.setAttribute("y", 18);
			text.textContent = step >= day ? date(t) : clock(t, step < 60);
			svg.append(line, text);
		}
	};
	cimeter.lines = { axis, clock, date };
	const figures = () => all("figure[data-points]");
	const draw = () => { for (const f of figures()) axis(f, ...f.dataset.points.split("|")[0].split(" ").map(Number)); };
	draw();
	themed.addEventListener("fresh", draw);

	const { plots } = document.body.dataset;
	if (!plots) return;
	let asked = null;
	const load = e => {
		if (asked || e && !e.target.closest("[data-lines] .plot,[data-lines] .zoom")) return;
		asked = plots.split(" ").reduce((before, url) => before.then(() => import(url)), Promise.resolve());
		asked.catch(() => { asked = null; });
	};
	for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, load);
	for (const p of all("[data-lines] .plot")) p.tabIndex = 0;
	themed.addEventListener("fresh", () => { if (!asked) for (const p of all("[data-lines] .plot")) p.tabIndex = 0; });
	if (new URLSearchParams(location.search).has("z")) load();
})();
