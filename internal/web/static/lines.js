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
	cimeter.lines = { axis, clock, date };
	// Those that plots.js drew have the axis of what they show.
	const draw = () => { for (const f of all("figure[data-points]:not(:has(.live))")) axis(f, ...f.dataset.points.split("|")[0].split(" ").map(Number)); };
	draw();
	themed.addEventListener("fresh", draw);

	// Builds over time: the link of the piece of time under the pointer leads to the build
	// there, if there is one; a drag chooses a time.
	for (const lanes of all("[data-occupancy]")) {
		const [from, to] = lanes.dataset.occupancy.split(" ").map(Number), told = document.querySelector("[data-pointed]"), still = told.textContent, pieces = lanes.querySelector(".pieces");
		const rows = all("[data-blocks]", lanes).map(svg => [svg, svg.dataset.blocks.split("\n").map(l => l.split("\t"))]);
		const share = e => { const r = pieces.getBoundingClientRect(); return Math.max(0, Math.min(1, (e.clientX - r.left) / r.width)); };
		const blockAt = e => {
			const row = rows.find(([svg]) => { const r = svg.getBoundingClientRect(); return e.clientY >= r.top && e.clientY <= r.bottom; });
			const near = 2000 / pieces.clientWidth, x = 1000 * share(e);
			return row && row[1].find(([a, b]) => x >= a - near && x <= +b + near);
		};
		let start = null, moved = false;
		const marked = document.createElementNS(SVG, "rect");
		marked.setAttribute("class", "marked");
		marked.setAttribute("height", "100%");
		lanes.addEventListener("pointermove", e => {
			const a = e.target.closest("a");
			if (start !== null && Math.abs(e.clientX - start) > 6) {
				const r = pieces.getBoundingClientRect(), x = Math.max(0, Math.min(e.clientX, start) - r.left);
				moved = true;
				marked.setAttribute("x", x);
				marked.setAttribute("width", Math.abs(e.clientX - start));
				pieces.prepend(marked);
			}
			if (!a) return;
			a.dataset.list ??= a.getAttribute("href");
			const b = blockAt(e);
			a.setAttribute("href", b ? b[2] : a.dataset.list);
			told.textContent = b ? b[3] : still;
		});
		lanes.addEventListener("pointerleave", () => { told.textContent = still; });
		lanes.addEventListener("dragstart", e => e.preventDefault());
		lanes.addEventListener("pointerdown", e => { if (e.button === 0 && e.pointerType === "mouse") { start = e.clientX; moved = false; } });
		addEventListener("pointerup", e => {
			if (start !== null && moved) {
				const q = new URLSearchParams(location.search), left = pieces.getBoundingClientRect().left, width = pieces.clientWidth || pieces.getBoundingClientRect().width;
				const at = x => new Date(1000 * (from + (to - from) * Math.max(0, Math.min(1, (x - left) / width)))).toISOString().slice(0, 16);
				q.delete("t");
				q.set("from", at(Math.min(start, e.clientX)));
				q.set("to", at(Math.max(start, e.clientX)));
				location.assign(location.pathname + "?" + q);
			}
			start = null;
		});
		lanes.addEventListener("click", e => { if (moved) e.preventDefault(); }, true);
	}

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
