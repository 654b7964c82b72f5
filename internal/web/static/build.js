"use strict";
// The page of a build: four charts, the lane of its stages and the time axis
// show one span of time, and one cursor.
(() => {
	const { all, say, keys } = cimeter, { make, steer, bytes, sig3, clock, timeTicks, units, params, setParams, hidden, toggles, labelOf } = cimeter.charts;
	const place = document.querySelector("[data-trace]");
	if (!place) return;
	const SVG = "http://www.w3.org/2000/svg";
	let trace = null, charts = [];

	const shared = {
		key: "build", from: 0, to: 1, bands: [], lit: null, log: params().get("y") === "log",
		moved: u => moved(u), selected: u => steered.selected(u), reset: () => zoom(trace.from, trace.to),
	};
	const whole = () => shared.from <= trace.from + 1e-6 && shared.to >= trace.to - 1e-6;

	// column is a column of the trace in the unit of its chart.
	const column = (vs, n, scale) => Array.from({ length: n }, (_, i) => vs && vs[i] !== null && vs[i] !== undefined ? vs[i] * scale : null);
	const unitOf = v => (units.find(x => v >= 0.9995 * x[1]) || units[3])[1];
	const top = yss => yss.reduce((m, ys) => ys.reduce((m, y) => Math.max(m, Math.abs(y || 0)), m), 0);

	const configs = () => {
		const n = Math.max(0, ...["cpu", "mem", "disk", "net"].flatMap(k => trace[k].map(c => c ? c.length : 0)));
		const xs = Array.from({ length: n }, (_, i) => (i + 0.5) * trace.step);
		const rate = v => bytes(v) + "/s", each = v => sig3(v) + "/s";
		// What the lines of a chart are, its legend says. A size of 0 is the unit's of the largest value.
		const chart = (k, scales, size, value, more) => {
			const outs = all(`[data-chart=${k}] output`, place), ys = outs.map((_, i) => column(trace[k][i], n, scales[i] ?? scales[0]));
			return { xs, ys, labels: outs.map(labelOf), colour: "--" + k, dashes: [, k === "mem" ? [10, 4] : [5, 3], [2, 3]], size: size || unitOf(top(ys)), words: value, value, hidden: outs.map((_, i) => hidden().has(`${k}.${i}`)), unit: "", ...more };
		};
		const cpu = chart("cpu", [0.001], 1, sig3, { unit: "cores" }), mem = chart("mem", [1024], 0, bytes);
		if (trace.compare) return { cpu, mem, disk: chart("disk", [1], 0, rate), net: chart("net", [1], 0, rate) };
		const { limits } = trace, marks = [], total = mem.ys[0] || [], mirrored = { mirrored: true };
		if (trace.peak && total.some(v => v !== null)) {
			const at = total.reduce((best, v, i) => v !== null && (best < 0 || v > total[best]) ? i : best, -1);
			marks.push({ x: xs[at], y: total[at], text: "peak " + bytes(trace.peak) });
		}
		for (const s of trace.stages) if (s.oom) marks.push({ x: s.to, y: limits.mem || trace.peak || 0, text: "killed", bad: true });
		if (limits.mem && top(mem.ys) >= limits.mem / 4) mem.size = unitOf(limits.mem);
		return {
			cpu: { ...cpu, words: v => v === 1 ? "1 core" : `${+v.toFixed(2)} cores`, limit: limits.cpu, band: [2, 1], strips: trace.stages.filter(s => s.throttled >= 0.05) },
			mem: { ...mem, limit: limits.mem, marks },
			disk: trace.ops ? chart("disk", [0.001, -0.001], 1, each, mirrored) : chart("disk", [1, -1], 0, rate, mirrored),
			net: chart("net", [1, -1], 0, rate, mirrored),
		};
	};

	const stageAt = x => trace.stages.find(s => !s.alongside && x >= s.from && x <= s.to);

	// draw makes the charts anew; data and theme are read again.
	const draw = () => {
		const cs = configs(), { left, top } = charts.length ? charts[0].u.cursor : { left: -1 };
		for (const c of charts) c.u.destroy();
		charts = [];
		for (const figure of all("[data-chart]", place)) {
			const plot = figure.querySelector("[data-plot]");
			if (!plot) continue;
			const c = cs[figure.dataset.chart], outputs = all("output", figure);
			for (const e of all(".live", plot)) e.remove();
			plot.classList.add("drawn-js");
			const u = make(plot, c, shared);
			charts.push({ u, c, plot, figure, outputs, at: outputs.map(o => o.dataset.still ?? (o.dataset.still = o.textContent)) });
			toggles(figure, figure.dataset.chart, () => charts.find(c => c.plot === plot).u);
		}
		place.dataset.drawn = "";
		if (left >= 0) queueMicrotask(() => { for (const { u } of charts) u.setCursor({ left, top }); }); // a chart knows its scales by then
	};

	// moved shows the values under the cursor in the legends.
	const moved = from => {
		const i = from.cursor.idx;
		for (const ch of charts) {
			if (ch.u !== from) continue;
			ch.outputs.forEach((o, k) => {
				const v = i === null || i === undefined || from.cursor.left < 0 ? undefined : ch.c.ys[k][i];
				o.textContent = v === undefined ? ch.at[k] : v === null ? "–" : ch.c.value(Math.abs(v));
			});
			if (ch !== charts[0]) continue;
			const off = from.cursor.left < 0 || i === null || i === undefined;
			cursorLine.hidden = off;
			if (!off) {
				cursorLine.style.left = from.cursor.left + "px";
				const s = stageAt(ch.c.xs[i]);
				clockAt.textContent = clock(ch.c.xs[i]) + (s ? " · " + s.name : "");
			} else clockAt.textContent = "";
		}
	};

	const round = v => String(Math.round(v * 1000) / 1000);

	// zoom shows a span of time everywhere.
	const zoom = (from, to, push) => {
		const least = Math.max(trace.step / 4, 1e-3);
		from = Math.max(trace.from, Math.min(from, trace.to - least));
		to = Math.min(trace.to, Math.max(to, from + least));
		show(from, to);
		setParams(whole() ? { from: null, to: null } : { from: round(from), to: round(to) }, push);
		say(whole() ? "whole build" : `${clock(from)} to ${clock(to)}`);
		if (trace.running && cimeter.pause) { if (whole()) cimeter.follow(); else cimeter.pause("paused while zoomed; show the whole build to follow"); }
	};
	const show = (from, to) => {
		shared.from = from;
		shared.to = to;
		for (const { u } of charts) u.batch(() => { u.setScale("x", { min: from, max: to }); });
		lanes();
		ticks();
		const span = place.querySelector("[data-span]");
		span.elements.from.value = round(from);
		span.elements.to.value = round(to);
		const reset = place.querySelector("[data-zoom=reset]");
		if (whole()) reset.setAttribute("aria-current", "true"); else reset.removeAttribute("aria-current");
	};

	const share = t => (t - shared.from) / (shared.to - shared.from);
	const inside = v => Math.min(1, Math.max(0, v));
	const lanes = () => {
		const drawn = place.querySelector("[data-lanes]"), wide = drawn.clientWidth - parseFloat(getComputedStyle(drawn).paddingLeft);
		drawn.append(over); // what is live draws them anew
		for (const a of all("[data-lanes] a", place)) {
			const x = inside(share(+a.dataset.from)), end = inside(share(+a.dataset.to)), label = a.querySelector("svg");
			for (const e of [a.querySelector("rect"), label]) {
				if (!e) continue;
				e.setAttribute("x", 100 * x + "%");
				e.setAttribute("width", 100 * Math.max(end - x, x > 0 && x < 1 ? 0.0008 : 0) + "%");
			}
			a.classList.toggle("away", end <= 0 || x >= 1);
			const text = label && label.querySelector("text");
			if (text) a.classList.toggle("tiny", text.textContent.length * 6.6 + 10 > (end - x) * wide);
			const beside = a.querySelector(":scope > text");
			if (beside) beside.setAttribute("x", 100 * end + "%");
		}
	};
	const ticks = () => {
		const svg = place.querySelector("[data-xaxis]");
		svg.replaceChildren();
		for (const t of timeTicks(shared.from, shared.to, Math.max(2, Math.min(9, Math.floor(svg.clientWidth / 60))))) {
			const line = document.createElementNS(SVG, "line"), text = document.createElementNS(SVG, "text"), x = 100 * share(t) + "%";
			for (const [k, v] of Object.entries({ x1: x, x2: x, y1: 0, y2: 5 })) line.setAttribute(k, v);
			text.setAttribute("x", x);
			text.setAttribute("y", 18);
			text.textContent = clock(t);
			svg.append(line, text);
		}
	};

	// The controls.
	const clockAt = document.createElement("span");
	clockAt.className = "clock";
	place.querySelector(".bar-h").append(clockAt);
	const cursorLine = document.createElement("div");
	cursorLine.className = "cursor-line";
	cursorLine.hidden = true;
	const over = document.createElement("div");
	over.className = "over";
	over.append(cursorLine);

	place.addEventListener("click", e => {
		const z = e.target.closest("[data-zoom]");
		if (!z || e.ctrlKey || e.metaKey || e.shiftKey) return;
		e.preventDefault();
		const mid = (shared.from + shared.to) / 2, half = (shared.to - shared.from) / 2;
		if (z.dataset.zoom === "in") zoom(mid - half / 2, mid + half / 2);
		else if (z.dataset.zoom === "out") zoom(mid - 2 * half, mid + 2 * half);
		else zoom(trace.from, trace.to);
	});
	// A link to a span of this page zooms without reading the page again.
	document.addEventListener("click", e => {
		const a = e.target.closest("a[href]");
		if (!trace || !a || e.ctrlKey || e.metaKey || e.shiftKey || e.button || a.closest("[data-zoom]")) return;
		const url = new URL(a.getAttribute("href"), location.href), from = url.searchParams.get("from"), to = url.searchParams.get("to");
		if (url.pathname !== location.pathname || from === null || to === null) return;
		const others = q => { q.delete("from"); q.delete("to"); return String(q); };
		if (others(new URLSearchParams(url.search)) !== others(params())) return;
		e.preventDefault();
		zoom(+from, +to, true);
		if (!a.closest("[data-lanes]")) place.scrollIntoView({ block: "start" });
	});
	place.querySelector("[data-span]").addEventListener("submit", e => {
		e.preventDefault();
		const f = e.target.elements, from = parseFloat(f.from.value), to = parseFloat(f.to.value);
		if (!(to > from)) { say("from and to: want seconds, from before to"); return; }
		zoom(from, to);
	});
	const log = place.querySelector("[data-log]");
	log.setAttribute("aria-pressed", shared.log);
	log.addEventListener("click", () => {
		shared.log = !shared.log;
		log.setAttribute("aria-pressed", shared.log);
		setParams({ y: shared.log ? "log" : null });
		draw();
	});
	addEventListener("popstate", () => {
		if (!trace) return;
		const q = params();
		show(q.has("from") ? +q.get("from") : trace.from, q.has("to") ? +q.get("to") : trace.to);
	});

	// By keyboard, and by drag: one cursor, moved over the readings.
	const steered = steer({
		charts: () => charts, shared, step: () => trace.step, whole: () => [trace.from, trace.to], show: (from, to) => show(from, to), zoom: (from, to) => zoom(from, to),
		by: factor => { const mid = (shared.from + shared.to) / 2, half = (shared.to - shared.from) / 2; zoom(mid - factor * half, mid + factor * half); },
		tell: (ch, at) => {
			const s = stageAt(ch.c.xs[at]);
			return `${clock(ch.c.xs[at])}${s ? ", " + s.name : ""}: ` + ch.c.labels.map((l, k) => `${l} ${ch.c.ys[k][at] === null ? "not known" : ch.c.value(Math.abs(ch.c.ys[k][at]))} ${ch.c.unit}`).join(", ");
		},
	});
	for (const plot of all("[data-plot]", place)) {
		plot.tabIndex = 0;
		plot.setAttribute("role", "application");
		plot.setAttribute("aria-label", plot.closest("figure").querySelector("h3").textContent + " over time; arrow keys move the cursor");
		plot.addEventListener("keydown", e => {
			if (e.ctrlKey || e.altKey || e.metaKey || !trace) return;
			const ch = charts.find(c => c.plot === plot);
			if (ch && steered.key(e, ch)) e.preventDefault();
		});
	}
	const neighbour = by => {
		const own = trace.stages.filter(s => !s.alongside);
		if (!own.length) return;
		const mid = (shared.from + shared.to) / 2;
		let i = whole() ? (by > 0 ? -1 : own.length) : own.findIndex(s => mid >= s.from && mid <= s.to);
		i = Math.max(0, Math.min(own.length - 1, i + by));
		zoom(own[i].from, own[i].to, true);
		say(`${own[i].name}, ${clock(own[i].from)} to ${clock(own[i].to)}`);
	};
	keys.set("f", () => trace && zoom(trace.from, trace.to));
	keys.set(".", () => trace && neighbour(1));
	keys.set(",", () => trace && neighbour(-1));

	// A row of the stage table marks its band.
	document.addEventListener("pointerover", e => {
		const row = e.target.closest(".stages tr[data-from]"), lit = row && shared.bands.find(b => Math.abs(b.from - row.dataset.from) < 1e-3) || null;
		if (lit === shared.lit) return;
		shared.lit = lit;
		for (const { u } of charts) u.redraw(false, false);
	});

	let frame = 0;
	new ResizeObserver(() => {
		cancelAnimationFrame(frame);
		frame = requestAnimationFrame(() => {
			for (const { u, plot } of charts) {
				const w = plot.clientWidth + parseFloat(getComputedStyle(plot).marginLeft);
				if (w !== u.width) u.setSize({ width: w, height: plot.clientHeight });
			}
			if (trace) { lanes(); ticks(); }
		});
	}).observe(place);
	cimeter.themed.addEventListener("change", () => { if (trace) draw(); });
	cimeter.themed.addEventListener("fresh", () => read(true));

	// read gets the trace; what the server has drawn stays until it is there.
	const note = document.createElement("p");
	note.className = "hint reading";
	const read = async again => {
		if (trace) lanes(); // they may be new ones
		const tell = (text, retry) => {
			note.textContent = text + " ";
			if (retry) {
				const b = document.createElement("button");
				b.type = "button";
				b.textContent = "Retry";
				b.addEventListener("click", () => { note.remove(); read(again); });
				note.append(b);
			}
			place.append(note);
		};
		const slow = again ? [] : [setTimeout(tell, 300, "reading the trace"), setTimeout(tell, 10000, "still reading the trace", true)];
		try {
			const answer = await fetch(place.dataset.trace, { headers: { accept: "application/json" } });
			if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
			const followed = !trace || whole();
			trace = await answer.json();
			note.remove();
			shared.bands = trace.stages.filter(s => !s.alongside);
			if (again) { if (followed) { shared.from = trace.from; shared.to = trace.to; } draw(); lanes(); ticks(); return; }
			// The server has read the span of the URL, and refused what is none.
			const zoomed = "zoomed" in place.dataset;
			shared.from = zoomed ? +place.dataset.from : trace.from;
			shared.to = zoomed ? +place.dataset.to : trace.to;
			draw();
			lanes();
			ticks();
		} catch (err) {
			place.dataset.drawn = "";
			tell(`The cursor and zoom do not work: ${err.message}.`, true);
		} finally {
			slow.forEach(clearTimeout);
		}
	};
	read(false);
	cimeter.build = { charts: () => charts, shared };
})();
