"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const buttons = [["toImage", "zoom2d", "pan2d", "resetScale2d"]];
  const config = { responsive: true, displaylogo: false, modeBarButtons: buttons };

  // -- plotly is packed: it would be nine tenths of the page. The policy of the page knows its hash ------
  async function unpack() {
    const packed = document.getElementById("plotly");
    if (!packed) return;
    const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
  }
  const ready = unpack();

  // -- charts: drawn when they come into view, or when they are asked for ------------------------------
  async function draw(figure) {
    await ready;
    if (figure.dataset.drawn) return;
    figure.dataset.drawn = "yes";
    const chart = charts[Number(figure.dataset.chart)];
    Plotly.newPlot(figure.querySelector(".plot"), chart.data, chart.layout, config);
  }

  async function setLog(figure, axis, isLog) {
    await draw(figure);
    const plot = figure.querySelector(".plot");
    const { bands } = charts[Number(figure.dataset.chart)];
    if (axis === "y" && bands.length) {
      const y = bands.map((band) => (isLog ? band.log : band.linear));
      Plotly.restyle(plot, { y }, bands.map((band) => band.trace));
    }
    const name = axis + "axis";
    Plotly.relayout(plot, { [name + ".type"]: isLog ? "log" : "linear", [name + ".autorange"]: true });
  }

  const figures = [...document.querySelectorAll("figure.chart")];
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => draw(entry.target)),
    { rootMargin: "600px" },
  );
  for (const figure of figures) {
    near.observe(figure);
    for (const box of figure.querySelectorAll("input[data-axis]")) {
      box.addEventListener("change", () => setLog(figure, box.dataset.axis, box.checked));
    }
  }
  window.addEventListener("beforeprint", () => figures.forEach(draw));

  // -- tables: a click sorts, another turns round; cells without a value stay last ---------------------
  function compare(a, b, isNumber) {
    return isNumber ? Number(a) - Number(b) : a.localeCompare(b, undefined, { numeric: true });
  }

  function sort(table, place) {
    const header = table.tHead.rows[0].cells[place];
    const isNumber = header.classList.contains("number");
    const turn = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", turn === 1 ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map((row) => [row.cells[place].dataset.key, row]);
    rows.sort(([a], [b]) => (a === "") - (b === "") || turn * compare(a, b, isNumber));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((cell, place) => {
      cell.querySelector("button").addEventListener("click", () => sort(table, place));
    });
  }
})();
