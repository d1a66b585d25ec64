// Replaces the content of the page by that of a newer one, as often as the servers are looked at. It rests while nobody
// sees the page, and while the reader has switched it off.
"use strict";
(() => {
	const every = Math.max(1000, Number(document.body.dataset.every));
	const live = document.getElementById("live"), lag = document.getElementById("lag");
	let asked = Date.now();

	async function refresh() {
		if (!live.checked || document.hidden) return;
		try {
			const answer = await fetch(location.href, { signal: AbortSignal.timeout(10000) });
			if (!answer.ok) throw new Error("status " + answer.status);
			const next = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("board");
			if (!live.checked) return;
			replace(next);
			asked = Date.now();
			lag.textContent = "";
		} catch {
			lag.textContent = "no answer for " + Math.round((Date.now() - asked) / 1000) + " s";
		}
	}

	// The reader keeps the place in the table, and the focus.
	function replace(next) {
		const board = document.getElementById("board");
		const table = board.querySelector(".scroll"), left = table ? table.scrollLeft : 0;
		const focused = board.contains(document.activeElement) ? document.activeElement : null;
		const link = focused && focused.getAttribute("href");
		board.replaceWith(next);
		const scroll = next.querySelector(".scroll");
		if (scroll) scroll.scrollLeft = left;
		if (link) next.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus({ preventScroll: true });
		else if (focused && focused === table) scroll?.focus({ preventScroll: true });
	}

	(async function forever() {
		for (;;) {
			await new Promise(done => setTimeout(done, every));
			await refresh();
		}
	})();
	document.addEventListener("visibilitychange", refresh);
})();
