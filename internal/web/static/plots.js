"use strict";
// Groups of lines over time: uPlot draws them, with one cursor and one span for all
// charts of a group. A group that the page reads again is drawn again as it was.
(() => {
	const { all, say, themed, lines: { axis, clock, date, fill, stamp } } = cimeter, { make, sig3, steer, params, setParams, hidden, toggles, labelOf } = cimeter.charts;
	const groups = new Map(), zooms = new Map();

	// The span of each group that is zoomed stands in the URL: z=name~from~to,name~from~to.
	for (const z of (params().get("z") || "").split(",")) {
		const [name, from, to] = z.split("~");
		if (+to > +from) zooms.set(name, [+from, +to]);
	}
	const keep = () => setParams({ z: [...zooms].map(([name, [from, to]]) => [name, Math.round(from), Math.round(to)].join("~")).join(",") || null });

	const nameOf = figure => figure.getAttribute("aria-labelledby").slice(0, -2);
	const numbers = s => s.split(" ").map(v => v === "-" ? null : +v);
	const config = figure => {
		const [span, xs, ...ys] = figure.dataset.points.split("|"), [from, to] = numbers(span);
		const items = all(".legend b", figure), classes = items.map(b => b.closest("li").querySelector("path").getAttribute("class").split(" ")), away = hidden();
		return {
			from, to, xs: numbers(xs).map(x => from + x), ys: ys.map(numbers), labels: items.map(labelOf), size: 1, words: String, value: sig3,
			colour: "--" + classes[0][1], colours: classes.map(c => c[1] === "limit" ? "--text" : "--" + c[1]), dashes: classes.map(c => c[2] && (c[2] === "dot" ? [2, 3] : c[1] === "mem" ? [10, 4] : [5, 3])),
			hidden: items.map((_, i) => away.has(`${nameOf(figure)}.${i}`)), area: figure.dataset.fill === "area" ? 0 : undefined, band: figure.dataset.fill === "band" ? [2, 1] : undefined,
			guides: (figure.dataset.guides || "").split("|").filter(Boolean).map(s => [parseFloat(s), s]), unit: (figure.querySelector("h3 small") || {}).textContent || "",
		};
	};
	// when is a time in words: with its day where the group is longer than one.
	const when = (g, t) => (g.to - g.from > 86400 * 1.1 ? date(t) + " " : "") + clock(t, g.to - g.from < 7200);

	const open = section => {
		const name = section.dataset.lines, before = groups.get(name);
		if (before) for (const { u, plot } of before.charts) { size.unobserve(plot); u.destroy(); }
		const figures = all("figure[data-points]", section), cs = figures.map(config);
		if (!cs.length) { groups.delete(name); return; }
		const g = { name, section, charts: [], from: Math.min(...cs.map(c => c.from)), to: Math.max(...cs.map(c => c.to)) };
		groups.set(name, g);
		const [from, to] = zooms.get(name) || [g.from, g.to];
		const inside = from < g.to && to > g.from;
		const shared = { key: "lines-" + name, from: inside ? Math.max(from, g.from) : g.from, to: inside ? Math.min(to, g.to) : g.to, bands: [], moved: u => moved(g, u), selected: u => steered.selected(u), reset: () => zoom(g, g.from, g.to) };
		g.shared = shared;
		const steered = steer({
			charts: () => g.charts, shared, step: () => (g.to - g.from) / Math.max(1, cs[0].xs.length), whole: () => [g.from, g.to], show: (a, b) => show(g, a, b), zoom: (a, b) => zoom(g, a, b), by: f => by(g, f),
			tell: (ch, i) => `${when(g, ch.c.xs[i])}: ` + ch.c.labels.map((l, k) => `${l} ${ch.c.ys[k][i] === null ? "not known" : sig3(ch.c.ys[k][i])} ${ch.c.unit}`).join(", "),
		});
		figures.forEach((figure, i) => {
			const plot = figure.querySelector(".plot"), values = all(".legend b", figure);
			for (const e of all(".drawn", plot)) e.remove();
			plot.tabIndex = 0;
			plot.setAttribute("role", "application");
			plot.setAttribute("aria-label", figure.querySelector("h3").textContent + " over time; arrow keys move the cursor");
			const ch = { c: cs[i], plot, figure, values, still: values.map(b => b.textContent), at: figure.querySelector(".legend .at") };
			ch.u = make(plot, cs[i], shared);
			g.charts.push(ch);
			toggles(figure, nameOf(figure), () => groups.get(name).charts[i].u);
			plot.addEventListener("keydown", e => { if (!e.ctrlKey && !e.altKey && !e.metaKey && steered.key(e, ch)) e.preventDefault(); });
			size.observe(plot);
		});
		show(g, shared.from, shared.to);
	};

	// moved shows the values under the cursor in the legend.
	const moved = (g, u) => {
		const ch = g.charts.find(c => c.u === u);
		if (!ch) return;
		const i = u.cursor.idx, off = i === null || i === undefined || u.cursor.left < 0;
		ch.at.hidden = off;
		if (!off) ch.at.textContent = when(g, ch.c.xs[i]);
		ch.values.forEach((b, k) => { const v = off ? undefined : ch.c.ys[k][i]; b.textContent = off ? ch.still[k] : v === null || v === undefined ? "–" : sig3(v); });
	};

	// The inputs of a group say what it shows, in local time; who types in one is left alone.
	const inputs = g => all("[data-between] input", g.section);
	const whole = g => g.shared.from <= g.from + 1e-3 && g.shared.to >= g.to - 1e-3;
	const show = (g, from, to) => {
		g.shared.from = from;
		g.shared.to = to;
		for (const { u, figure } of g.charts) {
			u.batch(() => u.setScale("x", { min: from, max: to }));
			axis(figure, from, to);
		}
		for (const b of all("[data-by=whole]", g.section)) b.disabled = whole(g);
		if (!inputs(g).includes(document.activeElement)) fill(g.section, from, to);
	};
	const zoom = (g, from, to) => {
		const least = (g.to - g.from) / Math.max(1, g.charts[0].c.xs.length) * 2;
		from = Math.max(g.from, Math.min(from, g.to - least));
		show(g, from, Math.min(g.to, Math.max(to, from + least)));
		if (whole(g)) zooms.delete(g.name); else zooms.set(g.name, [g.shared.from, g.shared.to]);
		keep();
		say(whole(g) ? "whole time" : `${when(g, g.shared.from)} to ${when(g, g.shared.to)}`);
		if (!cimeter.pause || !(g.section.closest("[data-region]") || g.section.querySelector("[data-region]"))) return;
		if (whole(g)) cimeter.follow(); else cimeter.pause("paused while zoomed; show the whole time to follow");
	};
	const by = (g, factor) => { const { from, to } = g.shared, mid = (from + to) / 2, half = factor * (to - from) / 2; zoom(g, mid - half, mid + half); };
	const pan = (g, share) => { const { from, to } = g.shared, d = Math.max(g.from - from, Math.min(g.to - to, share * (to - from))); zoom(g, from + d, to + d); };

	document.addEventListener("click", e => {
		const b = e.target.closest("[data-by]"), section = b && b.closest("[data-lines]"), g = section && groups.get(section.dataset.lines);
		if (!g) return;
		({ in: () => by(g, 0.5), out: () => by(g, 2), left: () => pan(g, -0.5), right: () => pan(g, 0.5), whole: () => zoom(g, g.from, g.to) })[b.dataset.by]();
	});

	document.addEventListener("submit", e => {
		const f = e.target.closest("[data-between]"), g = f && groups.get(f.closest("[data-lines]").dataset.lines);
		if (!f) return;
		e.preventDefault();
		const [from, to] = all("input", f).map(e => new Date(e.value.trim().replace(" ", "T")) / 1000);
		if (!g || !(to > from)) { say("from and to: want times such as " + stamp(Date.now() / 1000) + ", from before to"); return; }
		zoom(g, from, to);
		fill(g.section, g.shared.from, g.shared.to);
	});

	const size = new ResizeObserver(seen => requestAnimationFrame(() => {
		for (const { target } of seen) for (const g of groups.values()) for (const { u, plot, figure } of g.charts) {
			const w = plot.clientWidth + parseFloat(getComputedStyle(plot).marginLeft);
			if (plot === target && w > 0 && w !== u.width) { u.setSize({ width: w, height: plot.clientHeight }); axis(figure, g.shared.from, g.shared.to); }
		}
	}));
	const ready = () => { for (const s of all("[data-lines]")) if (!s.querySelector(".live")) open(s); };
	themed.addEventListener("fresh", ready);
	themed.addEventListener("change", () => { for (const g of groups.values()) for (const { u } of g.charts) u.redraw(false); });
	ready();
	cimeter.plots = groups;
})();
