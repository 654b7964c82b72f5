"use strict";
// Lists by keyboard, and the choice of two builds to compare.
(() => {
	const { all, say, keys, themed } = cimeter;
	// A table that fits needs no region of its own to scroll, and its head stays in sight.
	const fit = () => {
		document.documentElement.style.setProperty("--top", document.querySelector(".top").offsetHeight + "px");
		for (const s of all(".scroll")) {
			const t = s.querySelector("table");
			s.classList.toggle("fits", !!t && s.clientWidth > 0 && t.offsetWidth <= s.clientWidth);
		}
	};
	addEventListener("resize", fit);
	document.addEventListener("toggle", fit, true);
	themed.addEventListener("fresh", fit);
	fit();

	const form = document.querySelector("[data-compare]");
	const rows = () => all("tbody tr").filter(r => r.querySelector("th a"));
	const move = by => {
		const rs = rows(), at = rs.findIndex(r => r.contains(document.activeElement));
		const r = rs[Math.max(0, Math.min(rs.length - 1, at < 0 ? (by > 0 ? 0 : rs.length - 1) : at + by))];
		if (r) r.querySelector("th a").focus();
	};
	keys.set("j", () => move(1));
	keys.set("k", () => move(-1));
	if (!form) return;
	const button = form.querySelector("[data-compare-button]");
	const marked = () => all("input[name=build]:checked", form);
	const show = () => {
		const n = marked().length;
		button.disabled = n !== 2;
		button.textContent = n === 2 ? "Compare the two" : `Compare two builds (${n} marked)`;
	};
	form.addEventListener("change", e => {
		const m = marked();
		if (m.length > 2) m.find(b => b !== e.target).checked = false;
		show();
		say(`${marked().length} marked`);
	});
	keys.set("x", () => {
		const r = document.activeElement.closest("tr"), box = r && r.querySelector("input[name=build]");
		if (box) box.click();
	});
	keys.set("c", () => { if (!button.disabled) button.click(); });
	show();
})();
