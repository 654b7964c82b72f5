"use strict";
// A page with data-live follows the server: one stream of ticks, and at each
// the page is read again and its regions are put in place. Hidden, it stops.
(() => {
	const { all, say, localTimes } = cimeter;
	if (!("live" in document.body.dataset)) return;
	let stream = null, paused = false, reading = null;
	const state = document.querySelector("[data-live-state]");
	const button = document.querySelector("[data-pause]");
	const tell = text => { if (state) state.textContent = text; };
	let taken = Date.now(); // when what is shown was read
	const away = why => {
		const age = Math.round((Date.now() - taken) / 1000);
		tell(`${why}; showing the state of ${age < 120 ? `${age} s` : `${Math.round(age / 60)} min`} ago`);
	};

	// busy is a region that must not move: the pointer or the focus is inside.
	const busy = e => e.matches(":hover") || e.contains(document.activeElement);

	const replaceText = (old, next) => {
		if (!old.contains(document.activeElement)) old.replaceWith(document.importNode(next, true));
	};

	// patch renews the rows that stay, and moves none; it returns how many are new.
	const patch = (old, next) => {
		const rows = new Map(all("[data-key]", next).map(r => [r.dataset.key, r]));
		for (const row of all("[data-key]", old)) {
			const now = rows.get(row.dataset.key);
			rows.delete(row.dataset.key);
			if (!now || now.children.length !== row.children.length) continue;
			[...row.children].forEach((cell, i) => replaceText(cell, now.children[i]));
		}
		return rows.size;
	};

	const take = next => {
		let more = 0;
		taken = Date.now();
		for (const old of all("[data-region]")) {
			const now = next.getElementById(old.id);
			if (!now) continue;
			if (busy(old)) more += patch(old, now);
			else old.replaceWith(document.importNode(now, true));
		}
		localTimes(document);
		if (more > 0) say(`${more} new, shown when you leave the table`);
		cimeter.themed.dispatchEvent(new Event("fresh"));
	};

	// A document that XMLHttpRequest reads runs no script and is no sink of strings.
	const read = () => {
		if (reading) return;
		reading = new XMLHttpRequest();
		reading.responseType = "document";
		reading.timeout = 10000;
		reading.onload = () => { if (reading.status === 200 && reading.response) { tell("live"); take(reading.response); } else away(`the server answered ${reading.status}`); };
		reading.onerror = reading.ontimeout = () => away("the server is away");
		reading.onloadend = () => { reading = null; };
		reading.open("GET", document.body.dataset.live || location.href);
		reading.send();
	};

	const close = () => {
		if (stream) { stream.close(); stream = null; }
		if (reading) reading.abort();
	};
	const open = () => {
		if (stream || paused || document.hidden) return;
		stream = new EventSource("/live");
		stream.onmessage = read;
		stream.onerror = () => away("the server is away");
	};
	cimeter.pause = why => {
		paused = true;
		close();
		tell(why);
		if (button) { button.setAttribute("aria-pressed", "true"); button.textContent = "Follow"; }
	};
	cimeter.follow = () => {
		paused = false;
		if (button) { button.setAttribute("aria-pressed", "false"); button.textContent = "Pause"; }
		open();
	};
	if (button) button.addEventListener("click", () => { if (paused) { cimeter.follow(); say("following"); } else { cimeter.pause("paused"); say("paused"); } });
	document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
	addEventListener("pagehide", close);
	open();
})();
