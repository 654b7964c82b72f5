"use strict";
// Builds over time: what is under the pointer is told and a click opens it, a drag
// chooses a time, and by keyboard each group is one stop, in which the arrows move.
(() => {
	const { all, say } = cimeter;
	const section = document.querySelector("[data-over]");
	if (!section) return;
	const [from, to] = section.dataset.over.split(" ").map(Number), told = section.querySelector("[data-pointed]"), still = [...told.childNodes];
	const tell = item => told.replaceChildren(...(item ? [item.title] : still));
	// group makes items, in the order of time, one stop. over is where they lie, at(x, y) the
	// item there, and row their place from top to bottom.
	const group = (box, over, name, items, at) => {
		let now = -1;
		const picked = document.createElement("div");
		picked.className = "picked";
		picked.hidden = true;
		over.append(picked);
		box.tabIndex = 0;
		box.setAttribute("role", "application");
		box.setAttribute("aria-label", `${name}, ${items.length} in all; arrow keys move, Enter opens`);
		const pick = i => {
			now = i < 0 ? -1 : Math.min(i, items.length - 1);
			const item = items[now];
			picked.hidden = !item;
			tell(item);
			if (!item) return;
			Object.assign(picked.style, { left: 100 * item.from + "%", width: 100 * (item.to - item.from) + "%", top: item.top + "px", height: item.height + "px" });
			say(`${item.title}, ${now + 1} of ${items.length}`);
		};
		// beside is the item of the next row that is nearest.
		const beside = by => {
			const { top, from } = items[now], rows = items.filter(b => (b.top - top) * by > 0);
			const row = rows.length ? Math[by > 0 ? "min" : "max"](...rows.map(b => b.top)) : top;
			return items.indexOf(items.filter(b => b.top === row).reduce((a, b) => Math.abs(b.from - from) < Math.abs(a.from - from) ? b : a));
		};
		box.addEventListener("keydown", e => {
			if (e.ctrlKey || e.altKey || e.metaKey || !items.length) return;
			const by = e.shiftKey ? 10 : 1;
			if (e.key === "ArrowRight") pick(now < 0 ? 0 : now + by);
			else if (e.key === "ArrowLeft") pick(now < 0 ? items.length - 1 : Math.max(0, now - by));
			else if (e.key === "ArrowDown" || e.key === "ArrowUp") { if (now < 0) pick(0); else pick(beside(e.key === "ArrowDown" ? 1 : -1)); }
			else if (e.key === "Home") pick(0);
			else if (e.key === "End") pick(items.length - 1);
			else if (e.key === "Escape") pick(-1);
			else if (e.key === "Enter" && now >= 0) location.assign(items[now].url);
			else return;
			e.preventDefault();
		});
		box.addEventListener("blur", () => pick(-1));

		const share = x => { const r = over.getBoundingClientRect(); return Math.max(0, Math.min(1, (x - r.left) / r.width)); };
		cimeter.lines.chooses(box, over, from, to);
		over.addEventListener("pointermove", e => {
			const item = at(share(e.clientX), e.clientY), link = e.target.closest("a");
			tell(item);
			over.classList.toggle("on", !!item);
			if (!link) return;
			link.dataset.list ??= link.getAttribute("href");
			link.setAttribute("href", item ? item.url : link.dataset.list);
		});
		over.addEventListener("pointerleave", () => tell(items[now]));
		over.addEventListener("click", e => {
			const item = e.defaultPrevented || e.target.closest("a") ? null : at(share(e.clientX), e.clientY);
			if (item) location.assign(item.url);
		});
		for (const a of all("a", over)) a.tabIndex = -1;
		return items;
	};

	for (const lanes of all("[data-lanes-of]", section)) {
		const over = lanes.querySelector(".slices");
		const blocks = all("svg", lanes).flatMap(svg => all("path", svg).flatMap(path => {
			const xs = path.getAttribute("d").slice(1).split("M").map(m => m.split(" 13h").map(Number));
			return path.dataset.builds.split("\n").map((line, i) => {
				const [key, name, took] = line.split("\t"), [x, w] = xs[i];
				return { from: x / 2000, to: (x + w) / 2000, top: 0, height: 0, svg, url: "/builds/" + key, title: `${name}, ${path.dataset.word}, ${took}` };
			});
		})).sort((a, b) => a.from - b.from);
		const place = () => { const y = over.getBoundingClientRect().top; for (const b of blocks) { const r = b.svg.getBoundingClientRect(); b.top = Math.round(r.top - y); b.height = r.height; } };
		place();
		group(lanes, over, lanes.dataset.lanesOf, blocks, (x, y) => {
			const near = 2 / over.clientWidth, top = over.getBoundingClientRect().top;
			return blocks.find(b => y - top >= b.top && y - top <= b.top + b.height && x >= b.from - near && x <= b.to + near);
		});
	}
	for (const box of all("[data-bars]", section)) {
		const over = box, area = box.querySelector("svg.bars"), r = area.getBoundingClientRect();
		const bars = all("a", area).map(a => { const b = a.getBoundingClientRect(); return { from: (b.left - r.left) / r.width, to: (b.right - r.left) / r.width, top: 0, height: r.height, url: a.getAttribute("href"), title: a.getAttribute("aria-label") }; });
		group(box, over, box.dataset.bars, bars, x => bars.find(b => x >= b.from && x <= b.to));
	}
})();
