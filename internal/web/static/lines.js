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
			const text = document.createElementNS(SVG, "text");
			text.setAttribute("x", `${100 * (t - from) / (to - from)}%`);
			text.setAttribute("y", 18);
			text.textContent = step >= day ? date(t) : clock(t, step < 60);
			svg.append(text);
		}
	};
	// fill writes a span into the inputs of a group, in local time.
	const stamp = t => new Date(1000 * t - 60000 * new Date(1000 * t).getTimezoneOffset()).toISOString().slice(0, 19).replace("T", " ");
	const fill = (group, ...span) => all("[data-between] input", group).forEach((e, i) => { e.value = stamp(span[i]); });
	cimeter.lines = { axis, clock, date, fill, stamp };
	// Those that plots.js drew have the axis of what they show.
	const draw = () => {
		for (const f of all("[data-lines] figure[data-points]:not(:has(.live))")) {
			const span = f.dataset.points.split("|")[0].split(" ").map(Number);
			axis(f, ...span);
			fill(f.closest("[data-lines]"), ...span);
		}
		for (const p of all("[data-brush]")) axis(p.closest("figure"), ...p.dataset.brush.split(" ").map(Number));
	};
	draw();
	themed.addEventListener("fresh", draw);

	// chooses makes a drag over a drawing, from one time to another, the time of the page.
	const chooses = (on, box, from, to) => {
		let start = null, moved = false;
		const marked = document.createElement("div");
		marked.className = "dragged";
		on.addEventListener("dragstart", e => e.preventDefault());
		on.addEventListener("pointerdown", e => { if (e.button === 0 && e.pointerType === "mouse") { start = e.clientX; moved = false; } });
		on.addEventListener("pointermove", e => {
			if (start === null || Math.abs(e.clientX - start) <= 6) return;
			moved = true;
			Object.assign(marked.style, { left: Math.max(box.getBoundingClientRect().left, Math.min(e.clientX, start)) - on.getBoundingClientRect().left + "px", width: Math.abs(e.clientX - start) + "px" });
			on.append(marked);
		});
		addEventListener("pointerup", e => {
			if (start !== null && moved) {
				const q = new URLSearchParams(location.search), r = box.getBoundingClientRect();
				const at = (x, up) => new Date(1000 * (from + (to - from) * Math.max(0, Math.min(1, (x - r.left) / r.width))) + up).toISOString().slice(0, 16);
				q.delete("t");
				q.set("from", at(Math.min(start, e.clientX), 0));
				q.set("to", at(Math.max(start, e.clientX), 59999));
				location.assign(location.pathname + "?" + q);
			}
			start = null;
		});
		on.addEventListener("click", e => { if (moved) e.preventDefault(); }, true);
	};

	for (const plot of all("[data-brush]")) chooses(plot, plot.querySelector(".area"), ...plot.dataset.brush.split(" ").map(Number));
	cimeter.lines.chooses = chooses;

	const { plots } = document.body.dataset;
	if (!plots) return;
	let asked = null;
	const load = e => {
		if (asked || e && !e.target.closest("[data-lines] .plot,[data-lines] .zoom,[data-lines] .legend,[data-between]")) return;
		asked = plots.split(" ").reduce((before, url) => before.then(() => import(url)), Promise.resolve());
		asked.catch(() => { asked = null; });
	};
	for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, load);
	for (const p of all("[data-lines] .plot")) p.tabIndex = 0;
	themed.addEventListener("fresh", () => { if (!asked) for (const p of all("[data-lines] .plot")) p.tabIndex = 0; });
	const q = new URLSearchParams(location.search);
	if (q.has("z") || q.has("hide")) load();
})();
