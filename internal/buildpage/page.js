"use strict";
// A click on the head of a column sorts its table, a second one the other way round.
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.querySelectorAll("th")];
  heads.forEach((th, column) => th.querySelector("button").addEventListener("click", () => {
    const number = th.classList.contains("n");
    const up = th.getAttribute("aria-sort") === (number ? "descending" : "none") || !number && th.getAttribute("aria-sort") !== "ascending";
    for (const other of heads) other.setAttribute("aria-sort", "none");
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => number ? Number(row.cells[column].dataset.v) : row.cells[column].textContent;
    const rows = [...table.tBodies[0].rows].map(row => [value(row), row]);
    rows.sort(([x], [y]) => (number ? x - y : x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }));
}
