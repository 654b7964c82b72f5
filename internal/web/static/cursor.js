"use strict";
// Charts that the server drew get one cursor: where the pointer, or the arrow keys,
// are in one of them, all of its group show the values of that time in their legends.
// The values are those of the table under each chart.
(() => {
	const { all, say, themed } = cimeter;
	const rowsOf = f => all("tbody tr", f);
	const cells = row => [...row.children].map(c => c.textContent);
	let shown = null; // the group with the cursor, and where it is, 0 to 1

	const show = (group, share) => {
		if (shown && shown.group !== group) hide();
		shown = { group, share };
		for (const f of all("figure[data-cursor]", group)) {
			const rows = rowsOf(f), line = f.querySelector(".plot .cursor");
			if (!rows.length || !line) continue;
			const i = Math.min(rows.length - 1, Math.floor(share * rows.length));
			const values = cells(rows[i]);
			line.hidden = false;
			line.style.left = `${100 * (i + 0.5) / rows.length}%`;
			const at = f.querySelector(".legend .at");
			at.hidden = false;
			at.textContent = `${values[0]} UTC`;
			all(".legend b", f).forEach((b, j) => {
				if (!("now" in b.dataset)) b.dataset.now = b.textContent;
				b.textContent = values[j + 1];
			});
		}
	};
	const hide = () => {
		if (!shown) return;
		for (const f of all("figure[data-cursor]", shown.group)) {
			const line = f.querySelector(".plot .cursor");
			if (line) line.hidden = true;
			f.querySelector(".legend .at").hidden = true;
			for (const b of all(".legend b[data-now]", f)) { b.textContent = b.dataset.now; delete b.dataset.now; }
		}
		shown = null;
	};

	// key moves the cursor by rows of the focused chart.
	const key = e => {
		const f = e.currentTarget.closest("figure"), n = rowsOf(f).length, group = f.closest(".trends");
		const now = shown && shown.group === group ? Math.min(n - 1, Math.floor(shown.share * n)) : n;
		const by = e.shiftKey ? 10 : 1;
		const to = { ArrowLeft: now - by, ArrowRight: now + by, Home: 0, End: n - 1 }[e.key];
		if (e.key === "Escape") return hide();
		if (to === undefined) return;
		e.preventDefault();
		const i = Math.max(0, Math.min(n - 1, to));
		show(group, (i + 0.5) / n);
		const values = cells(rowsOf(f)[i]), heads = all("thead th", f).map(h => h.textContent);
		say(`${values[0]} UTC: ${heads.slice(1).map((h, j) => `${h} ${values[j + 1]}`).join(", ")}`);
	};

	const ready = () => {
		for (const plot of all("figure[data-cursor] .plot")) {
			if (plot.querySelector(".cursor")) continue;
			const line = document.createElement("div");
			line.className = "cursor";
			line.hidden = true;
			plot.append(line);
			plot.tabIndex = 0;
			plot.setAttribute("role", "application");
			plot.setAttribute("aria-label", `${plot.closest("figure").querySelector("h3").textContent}: left and right move the cursor`);
			plot.addEventListener("pointermove", e => {
				const r = plot.getBoundingClientRect();
				show(plot.closest(".trends"), Math.max(0, Math.min(1 - 1e-9, (e.clientX - r.left) / r.width)));
			});
			plot.addEventListener("pointerleave", hide);
			plot.addEventListener("keydown", key);
			plot.addEventListener("blur", hide);
		}
	};
	themed.addEventListener("fresh", () => { shown = null; ready(); });
	ready();
})();
