"use strict";
// Charts that share one time axis and one cursor. uPlot draws them; the server
// has drawn the same before, for who has no script.
cimeter.charts = (() => {
	const { all, say } = cimeter;
	const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
	const short = v => String(Math.round(v * 100) / 100);
	const KiB = 1024, units = [["TiB", KiB ** 4], ["GiB", KiB ** 3], ["MiB", KiB ** 2], ["KiB", KiB]];
	const sig3 = v => {
		const a = Math.abs(v);
		if (a === 0) return "0";
		if (a < 0.00095) return "<0.001";
		return a < 0.0995 ? a.toFixed(3) : a < 9.995 ? a.toFixed(2) : a < 99.95 ? a.toFixed(1) : Math.round(a).toLocaleString("en");
	};
	const bytes = v => { const a = Math.abs(v), [n, u] = units.find(x => a >= 0.9995 * x[1]) || units[3]; return a === 0 ? "0" : sig3(a / u) + " " + n; };
	const clock = t => {
		const s = t < 0 ? "-" : "", two = n => String(Math.round(n)).padStart(2, "0");
		t = Math.abs(t);
		if (t < 60) return s + short(t) + " s";
		return t < 3600 ? `${s}${Math.floor(t / 60)}:${two(Math.floor(t % 60))}` : `${s}${Math.floor(t / 3600)}:${two(Math.floor(t % 3600 / 60))}:${two(t % 60)}`;
	};
	// The state of charts stands in the URL.
	const params = () => new URLSearchParams(location.search);
	const setParams = (change, push) => {
		const q = params();
		for (const [k, v] of Object.entries(change)) if (v === null) q.delete(k); else q.set(k, v);
		const url = location.pathname + (q.size ? "?" + q : "");
		if (url !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", url);
	};
	const hidden = () => new Set((params().get("hide") || "").split(",").filter(Boolean));
	// toggles makes the entries of a legend buttons, which hide and show their lines.
	const toggles = (figure, id, chart) => all(".legend output,.legend b", figure).forEach((value, k) => {
		const li = value.closest("li"), name = `${id}.${k}`;
		let b = li.querySelector("button");
		if (!b) {
			b = document.createElement("button");
			b.type = "button";
			b.append(...li.childNodes);
			li.append(b);
			b.addEventListener("click", () => {
				const hide = hidden(), on = hide.delete(name);
				if (!on) hide.add(name);
				chart().setSeries(k + 1, { show: on });
				b.setAttribute("aria-pressed", on);
				setParams({ hide: [...hide].join(",") || null });
			});
		}
		b.setAttribute("aria-pressed", !hidden().has(name));
	});
	const labelOf = value => value.previousSibling.textContent.trim();

	// ticks are about n round numbers between lo and hi.
	const ticks = (lo, hi, n) => {
		const raw = (hi - lo) / n, base = 10 ** Math.floor(Math.log10(raw)), step = ([1, 2, 5].find(m => m * base >= raw * 0.999) || 10) * base;
		return !(hi > lo) ? [] : multiples(lo, hi, step);
	};
	const multiples = (lo, hi, step) => {
		const out = [];
		for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-9 && out.length < 50; k++) out.push(k * step);
		return out;
	};
	const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
	const timeTicks = (lo, hi, n) => !(hi > lo) ? [] : multiples(lo, hi, steps.find(s => s >= (hi - lo) / n) || Math.ceil((hi - lo) / n / 86400) * 86400);

	// lone are the readings that no line leads to: they are drawn as dots.
	const lone = ys => { const at = []; ys.forEach((y, i) => { if (y !== null && ys[i - 1] == null && ys[i + 1] == null) at.push(i); }); return at.length ? at : null; };

	// make draws one chart into the element plot. c: title, colour (name of a
	// property), size (of the unit), words (a value as text), limit, xs, ys, dashes, marks.
	const make = (plot, c, shared) => {
		const axis = parseFloat(getComputedStyle(plot).marginLeft);
		const box = document.createElement("div");
		box.className = "live";
		box.ariaHidden = "true";
		plot.append(box);
		const tint = () => { const [r, g, b] = rgb(css(c.colour)); return `rgba(${r},${g},${b},.14)`; };
		const line = (i) => ({ label: c.labels[i], stroke: () => css(c.colours ? c.colours[i] : c.colour), width: 1.6, dash: c.dashes[i], points: { show: false, size: 4, filter: (u, k) => lone(u.data[k]), fill: () => css(c.colours ? c.colours[i] : c.colour) }, spanGaps: false, show: !c.hidden[i], fill: c.area === i ? tint : undefined });
		const range = (u, lo, hi) => {
			lo = Math.min(0, lo ?? 0);
			hi = Math.max(0, hi ?? 0);
			if (c.limit && hi >= 0.25 * c.limit) hi = Math.max(hi, c.limit);
			for (const [at] of c.guides || []) hi = Math.max(hi, 1.2 * at); // its words stand above it
			if (c.mirrored) { const m = Math.max(hi, -lo); lo = Math.min(lo, -m / 8); hi = Math.max(hi, m / 8); }
			if (!(hi > lo)) hi = lo + c.size;
			const more = 0.06 * (hi - lo);
			return [lo - more, hi + more];
		};
		const y = shared.log ? { distr: 4, asinh: c.size / 20, range } : { range };
		const text = (u, s, x, top, align, colour) => {
			const ctx = u.ctx;
			ctx.font = `${11.5 * devicePixelRatio}px system-ui, sans-serif`;
			ctx.textAlign = align;
			ctx.textBaseline = "alphabetic";
			ctx.lineWidth = 3 * devicePixelRatio;
			ctx.lineJoin = "round";
			ctx.strokeStyle = css("--bg");
			ctx.strokeText(s, x, top);
			ctx.fillStyle = colour;
			ctx.fillText(s, x, top);
		};
		const bands = u => {
			const { ctx, bbox } = u;
			ctx.save();
			ctx.fillStyle = css("--text");
			shared.bands.forEach((b, i) => {
				const from = Math.max(bbox.left, u.valToPos(b.from, "x", true)), to = Math.min(bbox.left + bbox.width, u.valToPos(b.to, "x", true));
				if (to <= from) return;
				ctx.globalAlpha = b === shared.lit ? 0.16 : i % 2 ? 0.075 : 0.035;
				ctx.fillRect(from, bbox.top, to - from, bbox.height);
			});
			ctx.restore();
		};
		const marks = u => {
			const { ctx, bbox } = u, px = devicePixelRatio;
			ctx.save();
			ctx.beginPath();
			ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
			ctx.clip();
			for (const b of c.strips || []) {
				const from = u.valToPos(b.from, "x", true), to = u.valToPos(b.to, "x", true);
				ctx.strokeStyle = css("--bad");
				ctx.lineWidth = 1.5 * px;
				ctx.beginPath();
				ctx.save();
				ctx.rect(from, bbox.top + bbox.height - 6 * px, to - from, 6 * px);
				ctx.clip();
				ctx.beginPath();
				for (let x = Math.max(from, bbox.left) - 6 * px; x < Math.min(to, bbox.left + bbox.width); x += 4 * px) { ctx.moveTo(x, bbox.top + bbox.height); ctx.lineTo(x + 6 * px, bbox.top + bbox.height - 6 * px); }
				ctx.stroke();
				ctx.restore();
			}
			for (const [limit, words] of [...(c.limit ? [[c.limit, "limit " + c.words(c.limit)]] : []), ...(c.guides || [])]) {
				if (limit > u.scales.y.max) continue;
				const at = Math.round(u.valToPos(limit, "y", true));
				ctx.strokeStyle = css("--other");
				ctx.lineWidth = 1.5 * px;
				ctx.setLineDash([2 * px, 3 * px]);
				ctx.beginPath();
				ctx.moveTo(bbox.left, at);
				ctx.lineTo(bbox.left + bbox.width, at);
				ctx.stroke();
				ctx.setLineDash([]);
				text(u, words, bbox.left + 6 * px, at > bbox.top + 18 * px ? at - 4 * px : at + 13 * px, "left", css("--text"));
			}
			for (const m of c.marks || []) {
				const x = u.valToPos(m.x, "x", true), y = u.valToPos(Math.min(m.y, u.scales.y.max), "y", true);
				if (x < bbox.left || x > bbox.left + bbox.width) continue;
				const align = x > bbox.left + bbox.width - 90 * px ? "right" : x < bbox.left + 90 * px ? "left" : "center", above = y > bbox.top + 34 * px;
				text(u, m.text, align === "right" ? x - 4 * px : x, above ? y - 6 * px : y + 17 * px, align, css(m.bad ? "--bad" : "--text"));
				ctx.fillStyle = css(m.bad ? "--bad" : c.colour);
				ctx.beginPath();
				ctx.arc(x, y, 3.5 * px, 0, 7);
				ctx.fill();
			}
			ctx.restore();
		};
		const u = new uPlot({
			width: plot.clientWidth + axis, height: plot.clientHeight, padding: [0, 0, 0, 0], legend: { show: false },
			scales: { x: { time: false, range: () => [shared.from, shared.to] }, y },
			cursor: { y: false, drag: { x: true, y: false, setScale: false, dist: 5 }, sync: shared.key ? { key: shared.key, setSeries: false, scales: ["x", null] } : undefined, points: { size: 6, width: 1.5 } },
			axes: [{ show: false }, {
				size: axis, gap: 4, font: "11.5px system-ui, sans-serif", stroke: () => css("--muted"), ticks: { show: false }, grid: { stroke: () => css("--soft"), width: 1 },
				...(shared.log ? {} : { splits: (u, i, lo, hi) => ticks((lo > -0.07 * (hi - lo) ? 0 : lo) / c.size, hi / c.size, 4).map(v => v * c.size).filter(v => hi - v > 0.045 * (hi - lo)) }), // a word at the top would be cut
				values: (u, vs) => vs.map(v => v === null ? "" : short(Math.abs(v / c.size))),
			}],
			series: [{}, ...c.ys.map((_, i) => line(i))],
			bands: c.band ? [{ series: c.band, fill: tint }] : [],
			hooks: {
				drawClear: [bands], draw: [marks],
				setCursor: [u => shared.moved(u)],
				setSelect: [u => shared.selected(u)],
			},
		}, [c.xs, ...c.ys], box);
		u.over.addEventListener("dblclick", () => shared.reset());
		return u;
	};
	// steer gives charts that share an axis their keys and what a drag does. g: charts() of u and c, shared, step() and
	// whole() of the axis, show(from, to), zoom(from, to), by(factor), tell(chart, i): a reading in words.
	const steer = g => {
		let at = -1, anchor = -1, telling = false;
		const quietly = f => { telling = true; for (const { u } of g.charts()) f(u); telling = false; };
		const clear = () => quietly(u => u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false));
		const selected = u => {
			const { left, width } = u.select;
			if (telling || width < 2) return;
			// The other charts tell of the same selection, and by then on the new scale.
			telling = true;
			setTimeout(() => { telling = false; clear(); }, 0);
			g.zoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
		};
		const marked = xs => [xs[Math.min(anchor, at)] - g.step() / 2, xs[Math.max(anchor, at)] + g.step() / 2];
		const moveTo = i => {
			const xs = g.charts()[0].c.xs, { from, to } = g.shared;
			if (!xs.length) return;
			at = Math.max(0, Math.min(xs.length - 1, i));
			const x = xs[at];
			if (x < from || x > to) {
				const [first, last] = g.whole(), start = x < from ? x : x - (to - from);
				g.show(Math.max(first, start), Math.min(last, start + to - from));
			}
			for (const { u } of g.charts()) u.setCursor({ left: u.valToPos(x, "x"), top: u.over.clientHeight / 2 });
			if (anchor < 0) return;
			const [a, b] = marked(xs);
			quietly(u => { const left = Math.max(0, u.valToPos(a, "x")); u.setSelect({ left, width: u.valToPos(b, "x") - left, top: 0, height: u.over.clientHeight }, false); });
		};
		const key = (e, ch) => {
			const by = e.shiftKey ? 10 : 1, xs = ch.c.xs, first = xs.findIndex(x => x >= g.shared.from), last = xs.findLastIndex(x => x <= g.shared.to);
			switch (e.key) {
			case "ArrowLeft": moveTo(at < 0 ? last : at - by); break;
			case "ArrowRight": moveTo(at < 0 ? first : at + by); break;
			case "Home": moveTo(first); break;
			case "End": moveTo(last); break;
			case " ":
				if (anchor < 0) { if (at < 0) moveTo(first); anchor = at; moveTo(at); say("selection begun; move, then Enter"); return true; }
				anchor = -1; clear(); say("selection ended"); return true;
			case "Enter":
				if (anchor < 0) return false;
				{ const [a, b] = marked(xs); anchor = -1; clear(); g.zoom(a, b); }
				return true;
			case "Escape": anchor = -1; clear(); for (const { u } of g.charts()) u.setCursor({ left: -10, top: -10 }); at = -1; say("cleared"); return true;
			case "0": anchor = -1; clear(); g.zoom(...g.whole()); return true;
			case "+": case "=": g.by(0.5); return true;
			case "-": g.by(2); return true;
			default: return false;
			}
			say(g.tell(ch, at));
			return true;
		};
		return { selected, key };
	};
	const rgb = hex => hex.startsWith("#") ? [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16)) : [128, 128, 128];
	return { make, steer, css, bytes, sig3, clock, timeTicks, short, units, params, setParams, hidden, toggles, labelOf };
})();
