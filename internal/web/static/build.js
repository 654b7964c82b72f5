"use strict";
for (const e of document.querySelectorAll("[data-trace]")) e.dataset.drawn = "";
