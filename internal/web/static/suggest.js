"use strict";
// The filter of the list of builds suggests its words, and names that are known for
// them, while they are typed. Without this it takes the same text.
(() => {
	const { say } = cimeter;
	const form = document.querySelector("[data-suggest]");
	if (!form) return;
	const input = form.querySelector("input[type=search]");
	const words = {
		project: "", ref: "branch or tag", job: "", stage: "", runner: "", machine: "", result: "", verdict: "what was found", pipeline: "", tag: "", ci: "", metered: "yes or no",
		cpu: ">600s", mem: ">90%", wall: ">10m", queue: ">1m", io: ">1GiB", net: ">1GiB", since: "7d", before: "2026-11-30",
	};
	const fixed = { result: ["success", "failed", "canceled", "skipped"], verdict: ["oom", "throttled", "disputed"], metered: ["yes", "no"], since: ["1h", "24h", "7d", "30d"] };
	const kinds = { project: "project", ref: "ref", branch: "ref", job: "job", name: "job", stage: "stage", runner: "runner", machine: "machine" };
	const measured = new Set(["cpu", "mem", "wall", "queue", "io", "net"]);

	const list = document.createElement("ul");
	list.id = "suggestions";
	list.className = "suggest";
	list.hidden = true;
	list.setAttribute("role", "listbox");
	list.setAttribute("aria-label", "Suggestions");
	input.after(list);
	for (const [k, v] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id })) input.setAttribute(k, v);

	let active = -1, timer = 0, asking = null, took = false;

	// term is the one that the caret is in: from its start to the caret, outside of
	// quotes.
	const term = () => {
		const text = input.value, caret = input.selectionStart;
		let start = 0, quoted = false;
		for (let i = 0; i < caret; i++) {
			if (text[i] === "\\" && quoted) i++;
			else if (text[i] === '"') quoted = !quoted;
			else if (!quoted && /\s/.test(text[i])) start = i + 1;
		}
		const m = /^(-?)([a-z_]*)(:?)(.*)$/is.exec(text.slice(start, caret));
		return { start, caret, not: m[1], key: m[2].toLowerCase(), has: m[3] === ":", part: m[4].replace(/^"/, "").replace(/\\(.)/g, "$1") };
	};
	const quote = s => /[\s"\\*]/.test(s) || /^[<>=:]/.test(s) ? `"${s.replace(/["\\]/g, "\\$&")}"` : s;

	const close = () => {
		clearTimeout(timer);
		if (asking) asking.abort();
		asking = null;
		list.hidden = true;
		active = -1;
		input.setAttribute("aria-expanded", "false");
		input.removeAttribute("aria-activedescendant");
	};
	const mark = i => {
		const options = [...list.children];
		active = options.length ? (i + options.length) % options.length : -1;
		options.forEach((o, j) => o.setAttribute("aria-selected", j === active));
		if (active < 0) return;
		input.setAttribute("aria-activedescendant", options[active].id);
		options[active].scrollIntoView({ block: "nearest" });
	};
	const accept = option => {
		const t = term(), value = option.dataset.value, word = option.dataset.word;
		const text = t.not + (word ? word + (measured.has(word) ? ">" : ":") : `${t.key}:${quote(value)} `);
		input.setRangeText(text, t.start, t.caret, "end");
		close();
		input.focus();
		if (word && !measured.has(word)) ask();
	};
	const show = items => {
		list.replaceChildren(...items.map((it, i) => {
			const o = document.createElement("li");
			o.id = `suggestion-${i}`;
			o.setAttribute("role", "option");
			o.setAttribute("aria-selected", "false");
			o.textContent = it.word ? it.word + (measured.has(it.word) ? ">" : ":") : it.value;
			if (it.hint) {
				const small = document.createElement("small");
				small.textContent = it.hint;
				o.append(" ", small);
			}
			if (it.word) o.dataset.word = it.word; else o.dataset.value = it.value;
			o.addEventListener("pointerdown", e => { e.preventDefault(); accept(o); });
			return o;
		}));
		active = -1;
		list.hidden = items.length === 0;
		input.setAttribute("aria-expanded", String(items.length > 0));
		input.removeAttribute("aria-activedescendant");
		if (items.length) say(`${items.length} suggestions`);
	};
	const ask = async () => {
		const t = term();
		if (asking) asking.abort();
		asking = null;
		if (!t.has) return show(Object.entries(words).filter(([w]) => w.startsWith(t.key) && !t.part).map(([word, hint]) => ({ word, hint })));
		if (fixed[t.key]) return show(fixed[t.key].filter(v => v.startsWith(t.part) && v !== t.part).map(value => ({ value })));
		if (!kinds[t.key]) return close();
		const mine = asking = new AbortController();
		try {
			const r = await fetch(`${form.dataset.suggest}?${new URLSearchParams({ kind: kinds[t.key], part: t.part })}`, { signal: mine.signal });
			if (!r.ok) return close();
			const names = (await r.json()).names;
			if (asking === mine) show(names.filter(n => n !== t.part).map(value => ({ value })));
		} catch { /* aborted by the next, or the server is away: there is nothing to suggest */ }
	};
	input.addEventListener("input", () => {
		clearTimeout(timer);
		const t = term();
		if (!t.key && !t.has && !t.not) return close();
		timer = setTimeout(ask, 150);
	});
	input.addEventListener("keydown", e => {
		if (e.key === "ArrowDown" || e.key === "ArrowUp") {
			e.preventDefault();
			if (list.hidden) ask();
			else mark(active < 0 && e.key === "ArrowUp" ? -1 : active + (e.key === "ArrowDown" ? 1 : -1));
		} else if (e.key === "Enter" && active >= 0 && !list.hidden) {
			e.preventDefault();
			took = true;
			accept(list.children[active]);
		} else if (e.key === "Escape" && !list.hidden) {
			e.preventDefault();
			close();
		}
	});
	// The key that takes a suggestion sends no form, however the browser splits it.
	form.addEventListener("submit", e => { if (took) e.preventDefault(); });
	input.addEventListener("keyup", () => { took = false; });
	input.addEventListener("blur", close);
})();
