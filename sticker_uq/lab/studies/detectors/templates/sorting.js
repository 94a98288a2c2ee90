/* SPDX-License-Identifier: Apache-2.0 */
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const number = (text) => (/^[-–]?$/.test(text) ? NaN : parseFloat(text));
  const sort = (place) => {
    const rows = [...body.rows], texts = rows.map((row) => row.cells[place].textContent.trim());
    const numeric = texts.every((text) => /^[-–]?$/.test(text) || Number.isFinite(parseFloat(text)));
    const descending = heads[place].getAttribute("aria-sort") === "ascending";
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[place].setAttribute("aria-sort", descending ? "descending" : "ascending");
    const compared = (a, b) => {
      if (!numeric) return a.localeCompare(b);
      const [one, other] = [number(a), number(b)];
      return one - other;
    };
    const order = texts.map((text, index) => [text, index]).sort(([a], [b]) => {
      const [here, there] = [numeric && Number.isNaN(number(a)), numeric && Number.isNaN(number(b))];
      if (here || there) return here - there; // what is unknown stays at the end
      return descending ? compared(b, a) : compared(a, b);
    });
    body.append(...order.map(([, index]) => rows[index]));
  };
  heads.forEach((head, place) => {
    head.dataset.sort = "";
    head.tabIndex = 0;
    head.title = "sort";
    head.addEventListener("click", () => sort(place));
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(place); }
    });
  });
}
