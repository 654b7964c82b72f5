"use strict";
// What every page has: theme, local times, single keys, copying its address.
const cimeter = (() => {
	const root = document.documentElement;
	const all = (selector, within = document) => [...within.querySelectorAll(selector)];

	// say announces a text to a screen reader, politely and at most every 300 ms.
	let saying = 0;
	const say = text => {
		clearTimeout(saying);
		saying = setTimeout(() => { document.getElementById("status").textContent = text; }, 300);
	};

	const two = n => String(n).padStart(2, "0");
	const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
	const localTimes = within => {
		const now = new Date();
		for (const e of all("time[datetime]", within)) {
			const t = new Date(e.dateTime);
			if (isNaN(t)) continue;
			const minute = two(t.getHours()) + ":" + two(t.getMinutes());
			if (t.toDateString() === now.toDateString()) e.textContent = minute + ":" + two(t.getSeconds());
			else if (t.getFullYear() === now.getFullYear()) e.textContent = `${months[t.getMonth()]} ${t.getDate()} ${minute}`;
			else e.textContent = `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
		}
	};

	const themed = new EventTarget();
	const repaint = () => themed.dispatchEvent(new Event("change"));
	for (const q of ["(prefers-color-scheme: dark)", "(forced-colors: active)", "(prefers-contrast: more)"]) matchMedia(q).addEventListener("change", repaint);

	const kept = {
		get: k => { try { return localStorage.getItem(k); } catch { return null; } },
		set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* nothing is kept then */ } },
	};

	// keys are single letters; they work only while no field has the focus.
	const keys = new Map();
	let before = "";
	document.addEventListener("keydown", e => {
		if (e.ctrlKey || e.altKey || e.metaKey || kept.get("keys") === "off") return;
		if (e.target.closest("input,textarea,select,[role=application]")) return;
		const f = keys.get(before + e.key) || keys.get(e.key);
		before = e.key === "g" ? "g " : "";
		if (f) { e.preventDefault(); f(); }
	});
	for (const [k, to] of Object.entries({ n: "/", b: "/builds", q: "/queue", p: "/projects", m: "/machines" })) keys.set("g " + k, () => location.assign(to));
	keys.set("?", () => location.assign("/help"));
	keys.set("/", () => { const e = document.getElementById("q") || document.querySelector(".search input"); e.focus(); e.select(); });

	for (const b of all("[data-theme-toggle]")) b.addEventListener("click", () => {
		const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
		root.dataset.theme = dark ? "light" : "dark";
		document.cookie = `theme=${root.dataset.theme};path=/;max-age=31536000;samesite=lax`;
		repaint();
	});
	for (const b of all("[data-copy]")) b.addEventListener("click", async () => {
		try { await navigator.clipboard.writeText(b.dataset.copy || location.href); b.textContent = "Copied"; say("copied"); } catch { say("copying is not allowed here"); }
	});
	for (const b of all("[data-keys]")) {
		b.checked = kept.get("keys") !== "off";
		b.addEventListener("change", () => kept.set("keys", b.checked ? "on" : "off"));
	}
	// What the server said of its time stands in the footer; a browser tells it over a safe
	// connection alone.
	const timing = document.querySelector("[data-timing]"), told = (performance.getEntriesByType("navigation")[0] || {}).serverTiming || [];
	if (timing && told.length > 1) timing.textContent = "server: " + told.map(t => `${t.name} ${t.duration.toFixed(t.duration < 10 ? 1 : 0)} ms`).join(", ");
	localTimes(document);
	return { all, say, keys, themed, localTimes };
})();
