// Draws the page's charts as inline SVG from the embedded numbers; picking methods, reading values and the two schemes.
// A point is [x, mean, standard error or null, seeds, missing seeds]. Text reaches the page as text nodes only.
(() => {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);
  const picked = new Set(data.methods.map((method) => method.name));
  const SMALLEST = 120;  // pixels that a chart needs
  const tip = document.getElementById("tip");
  const color = (look) => `var(--look-${look})`;

  // ---- small helpers
  function svg(name, attributes, parent, text) {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }
  function html(name, className, parent, text) {
    const node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }
  function number(value) {
    if (value === null) return "none";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(2);
    return size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
  }
  const clean = (value) => Number(value.toPrecision(10));  // 0.30000000000000004 is 0.3
  function withError([, mean, error, seeds, missing]) {
    const interval = error === null || mean === null ? "" : ` ± ${number(error)}`;
    const lost = missing ? `, ${missing} not finite` : "";
    return `${number(mean)}${interval} (${seeds} seed${seeds === 1 ? "" : "s"}${lost})`;
  }

  // ---- looks: hatches, markers and swatches
  const STROKES = {
    "/": "M-2,2L2,-2M0,8L8,0M6,10L10,6", "\\": "M-2,6L2,10M0,0L8,8M6,-2L10,2", "x": "M0,0L8,8M0,8L8,0",
    "-": "M0,4L8,4", "|": "M4,0L4,8", "+": "M0,4L8,4M4,0L4,8", ".": "M3.4,4a.6,.6 0 1,0 1.2,0a.6,.6 0 1,0 -1.2,0",
  };
  const MARKERS = {
    "o": "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0Z", "s": "M-.9,-.9H.9V.9H-.9Z", "^": "M0,-1.1L1,.8H-1Z", "v": "M0,1.1L1,-.8H-1Z",
    "<": "M-1.1,0L.8,-1V1Z", ">": "M1.1,0L-.8,-1V1Z", "D": "M0,-1.2L1.2,0L0,1.2L-1.2,0Z",
    "P": "M-.4,-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z", "X": "M-1.1,-.6L-.6,-1.1L0,-.5L.6,-1.1L1.1,-.6L.5,0L1.1,.6L.6,1.1L0,.5L-.6,1.1L-1.1,.6L-.5,0Z",
    "*": "M0,-1.3L.35,-.4L1.24,-.4L.52,.18L.76,1.05L0,.52L-.76,1.05L-.52,.18L-1.24,-.4L-.35,-.4Z", "h": "M0,-1.1L.95,-.55V.55L0,1.1L-.95,.55V-.55Z",
    "p": "M0,-1.1L1.05,-.34L.65,.9H-.65L-1.05,-.34Z", "H": "M-1.1,0L-.55,-.95H.55L1.1,0L.55,.95H-.55Z", "d": "M0,-1.3L.75,0L0,1.3L-.75,0Z",
    "8": "M-.42,-1H.42L1,-.42V.42L.42,1H-.42L-1,.42V-.42Z", ".": "M-.5,0a.5,.5 0 1,0 1,0a.5,.5 0 1,0 -1,0Z",
  };
  function defineHatches() {
    const holder = svg("svg", { width: 0, height: 0, "aria-hidden": "true", style: "position:absolute" }, document.body);
    const defs = svg("defs", {}, holder);
    for (const [place, look] of Object.entries(data.looks)) {
      const scale = look.hatch.length > 2 ? 0.6 : 1;
      const tile = svg("pattern", { id: `hatch-${place}`, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: `scale(${scale})` }, defs);
      svg("rect", { width: 8, height: 8, style: `fill:${color(place)}` }, tile);
      for (const stroke of new Set(look.hatch)) svg("path", { d: STROKES[stroke] || "", style: "stroke:var(--hatch);stroke-width:1.1;fill:none" }, tile);
    }
  }
  function marker(look, x, y, size, parent) {
    const style = `fill:${color(look)};stroke:var(--hatch);stroke-width:.15`;
    return svg("path", { d: MARKERS[data.looks[look].marker], transform: `translate(${x},${y}) scale(${size})`, style, class: "marker" }, parent);
  }
  const lineStyle = (look) => `stroke:${color(look)};stroke-width:2;fill:none;stroke-linejoin:round;stroke-dasharray:${data.looks[look].dashes.map((dash) => 1.4 * dash).join(" ") || "none"}`;
  function swatch(look, kind, parent) {
    const image = svg("svg", { width: 26, height: 12, viewBox: "0 0 26 12", class: "swatch", "aria-hidden": "true" }, parent);
    if (kind === "bars") return void svg("rect", { width: 26, height: 12, rx: 2, style: `fill:url(#hatch-${look})` }, image);
    if (kind !== "scatter" && kind !== "dots") svg("path", { d: "M0,6H26", style: lineStyle(look) }, image);
    marker(look, 13, 6, 4, image);
  }

  // ---- scales and axes
  function ticks(low, high, count) {
    const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * ([1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999) || 10);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(clean(at));
    return found;
  }
  function decades(low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1)
      for (const factor of high / low < 30 ? [1, 2, 5] : [1]) if (factor * 10 ** power >= low && factor * 10 ** power <= high) found.push(clean(factor * 10 ** power));
    return found;
  }
  const scale = (low, high, from, to, log) => {
    const f = log ? Math.log : (value) => value;
    return (value) => from + ((f(value) - f(low)) / (f(high) - f(low))) * (to - from);
  };
  const grouped = (chart) => chart.kind === "bars" || chart.kind === "dots";  // names on the horizontal axis
  const widthOf = (text) => text.length * 6.6;
  const capped = (chart, value) => (chart.cap === null ? value : Math.min(value, chart.cap));
  function range(chart, panels) {
    const values = [];
    for (const panel of panels) for (const series of panel.series) for (const [, mean, error] of series.points)
      if (mean !== null) for (const sign of [-1, 0, 1]) values.push(capped(chart, mean + sign * (error || 0)));
    const usable = chart.log ? values.filter((value) => value > 0) : values;
    if (!usable.length) return chart.log ? [0.1, 1] : [0, 1];
    let low = usable.reduce((a, b) => Math.min(a, b)), high = usable.reduce((a, b) => Math.max(a, b));
    if (chart.log) return [low / 1.4, high * 1.2];
    if (grouped(chart) || (low > 0 && low < 0.4 * high)) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const room = (high - low) * 0.05;
    return [low === 0 ? 0 : low - room, high + room];
  }

  // ---- what is shown: methods can stand on any of the three axes of a figure
  function visible(chart) {
    const on = (column, name) => column !== "method" || picked.has(name);
    const panels = chart.panels.filter((panel) => on(chart.columns.facet, panel.name)).map((panel) => ({
      name: panel.name,
      series: panel.series.filter((series) => !series.method || picked.has(series.method))
        .map((series) => ({ ...series, points: series.points.filter((point) => on(chart.columns.x, point[0])) })).filter((series) => series.points.length),
    }));
    return panels.filter((panel) => panel.series.length);
  }

  function frame(chart, width, yRange, yTicks, topRoom) {
    const height = Math.round(Math.min(Math.max(width * 0.58, 230), 350));
    const longest = Math.max(...yTicks.map((at) => number(at).length));
    const box = { left: 14 + longest * 6.4, right: width - 8, top: topRoom, bottom: height - (chart.xlabel ? 42 : 26), width, height };
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img" });
    const y = scale(yRange[0], yRange[1], box.bottom, box.top, chart.log);
    for (const at of yTicks) {
      svg("line", { x1: box.left, x2: box.right, y1: y(at), y2: y(at), class: "grid" }, root);
      svg("text", { x: box.left - 7, y: y(at) + 4, "text-anchor": "end" }, root, number(at));
    }
    if (chart.xlabel) svg("text", { x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, root, chart.xlabel);
    return { root, box, y };
  }

  function drawBars(chart, panel, { root, box, y }, [low]) {
    const groups = chart.groups.filter((group) => panel.series.some((series) => series.points.some((point) => point[0] === group)));
    const inside = groups.map((group) => panel.series.flatMap((series) => series.points.filter((point) => point[0] === group).map((point) => ({ series, point }))));
    const room = (box.right - box.left) / groups.length, slot = Math.min((room * 0.86) / Math.max(...inside.map((bars) => bars.length)), 64);
    const level = inside.every((bars) => bars.every(({ point }) => slot > number(point[1]).length * 6.2));  // numbers lie flat, or none does
    const base = chart.log ? box.bottom : y(Math.max(low, 0));
    const stops = [];
    inside.forEach((bars, index) => {
      const middle = box.left + room * (index + 0.5);
      svg("text", { x: middle, y: box.bottom + 17, "text-anchor": "middle" }, root, groups[index]);
      bars.forEach(({ series, point }, place) => {
        const [, mean, error] = point, x = middle + (place - (bars.length - 1) / 2) * slot, half = slot * 0.46;
        let top = base, end = base;
        if (mean !== null && !(chart.log && mean <= 0)) {
          end = top = y(capped(chart, mean));
          if (chart.kind === "bars") svg("rect", { x: x - half, width: 2 * half, y: Math.min(end, base), height: Math.max(Math.abs(base - end), 0.5), rx: Math.min(2, half / 3), style: `fill:url(#hatch-${series.look})`, class: "bar" }, root);
          if (chart.cap !== null && mean > chart.cap) {  // it goes on: a gap between two strokes
            const stroke = (down) => `M${x - half - 2},${end + down + 4}L${x + half + 2},${end + down - 1}`;
            svg("path", { d: stroke(8), class: "gap" }, root);
            svg("path", { d: stroke(6) + stroke(10), class: "break" }, root);
          }
          if (error) {
            const lowest = mean - error, bottom = chart.log && lowest <= 0 ? box.bottom : y(capped(chart, lowest)), high = y(capped(chart, mean + error));
            svg("line", { x1: x, x2: x, y1: bottom, y2: high, class: "whisker" }, root);
            top = Math.min(top, high);
          }
          if (chart.kind === "dots") { marker(series.look, x, end, 4.2, root); top = Math.min(top, end - 5); }
        }
        const text = number(mean), at = Math.min(top, base) - 4;
        if (level) svg("text", { x, y: at, "text-anchor": "middle", class: "value" }, root, text);
        else if (slot > 10) svg("text", { transform: `translate(${x + 3.5},${at}) rotate(-90)`, class: "value" }, root, text);
        const title = [series.name, groups[index]].filter((name, i, all) => name && all.indexOf(name) === i).join(", ");
        const around = chart.kind === "bars" ? { x: x - half, width: 2 * half, y: Math.min(end, base), height: Math.max(Math.abs(base - end), 1) } : { x: x - 8, width: 16, y: end - 8, height: 16 };
        stops.push({ x, y: Math.min(end, base), title, rows: [{ text: withError(point) }], hot: around });
      });
    });
    svg("line", { x1: box.left, x2: box.right, y1: base, y2: base, class: "axis" }, root);
    return stops;
  }

  function drawLines(chart, panel, { root, box, y }, range) {
    const places = [...new Set(panel.series.flatMap((series) => series.points.map((point) => point[0])))].sort((a, b) => a - b);
    const first = places[0], last = places[places.length - 1];
    const edge = Math.max(10, widthOf(number(last)) / 2 - 6);  // the last number ends inside
    const x = first === last ? () => (box.left + box.right) / 2 : scale(first, last, box.left + 8, box.right - edge, false);
    const few = places.length <= 8 && places.every((at, i) => i === 0 || x(at) - x(places[i - 1]) > 30);
    for (const at of few || first === last ? places : ticks(first, last, Math.max(2, Math.floor((box.right - box.left) / 60))))
      svg("text", { x: x(at), y: box.bottom + 17, "text-anchor": "middle" }, root, number(at));
    svg("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }, root);
    const height = (value) => Math.min(y(Math.max(capped(chart, value), chart.log ? range[0] : -Infinity)), box.bottom);
    panel.series.forEach((series, order) => {
      const points = series.points.filter(([, mean]) => mean !== null && !(chart.log && mean <= 0));
      if (!points.length) return;
      const side = (sign) => points.map(([at, mean, error]) => `${x(at)},${height(mean + sign * (error || 0))}`);
      if (chart.kind === "curves") svg("path", { d: `M${[...side(1), ...side(-1).reverse()].join("L")}Z`, style: `fill:${color(series.look)};opacity:.17` }, root);
      else for (const [at, mean, error] of points) if (error) svg("line", { x1: x(at), x2: x(at), y1: height(mean - error), y2: height(mean + error), style: `stroke:${color(series.look)};stroke-width:1.5` }, root);
      if (chart.kind !== "scatter") svg("path", { d: `M${points.map(([at, mean]) => `${x(at)},${height(mean)}`).join("L")}`, style: lineStyle(series.look), class: "line" }, root);
      const every = chart.kind === "curves" ? Math.max(Math.floor(points.length / 7), 1) : 1, shift = Math.floor((order * every) / panel.series.length);
      points.forEach(([at, mean], i) => { if (i % every === shift) marker(series.look, x(at), height(mean), 4.2, root); });
    });
    return places.map((at) => {
      const rows = panel.series.flatMap((series) => series.points.filter((point) => point[0] === at).map((point) => ({ text: `${series.name}: ${withError(point)}`, mean: point[1] })));
      rows.sort((a, b) => b.mean - a.mean);
      return { x: x(at), y: box.top, title: `${chart.xlabel || chart.columns.x} ${number(at)}`, rows, cross: { x1: x(at), x2: x(at), y1: box.top, y2: box.bottom } };
    });
  }

  // ---- reading values: the nearest stop to the pointer, or arrow keys
  let owner = null;  // the chart whose values the tip shows: a chart that loses the focus must not hide another's
  function readable(root, width, stops) {
    let current = -1, mark = null;
    const hide = () => { if (owner === root) tip.hidden = true; current = -1; if (mark) mark.remove(); };
    const show = (index) => {
      if (index === current && owner === root && !tip.hidden) return;
      if (mark) mark.remove();
      current = index;
      owner = root;
      const stop = stops[index];
      mark = stop.hot ? svg("rect", { ...stop.hot, class: "hot" }, root) : svg("line", { ...stop.cross, class: "cross" }, root);
      tip.replaceChildren();
      html("b", "", tip, stop.title);
      for (const row of stop.rows) html("span", "", tip, row.text);
      tip.hidden = false;
      const place = root.getBoundingClientRect(), factor = place.width / width, size = tip.getBoundingClientRect();
      const left = place.left + stop.x * factor, top = place.top + stop.y * factor;
      const side = stop.cross ? left + 12 : left - size.width / 2;
      const wanted = stop.cross && side + size.width > innerWidth - 8 ? left - size.width - 12 : side;
      tip.style.left = `${scrollX + Math.max(8, Math.min(wanted, innerWidth - size.width - 8))}px`;
      const above = place.top - size.height - 4, clear = above > 8 ? above : place.bottom + 4;  // where the tip hides nothing of the chart
      const beside = size.width < 0.75 * place.width ? top : clear;
      tip.style.top = `${scrollY + Math.max(8, stop.cross ? beside : top - size.height - 22)}px`;
    };
    const nearest = (event) => {
      const place = root.getBoundingClientRect(), at = ((event.clientX - place.left) / place.width) * width;
      show(stops.reduce((best, stop, i) => (Math.abs(stop.x - at) < Math.abs(stops[best].x - at) ? i : best), 0));
    };
    root.addEventListener("pointermove", nearest);
    root.addEventListener("pointerdown", nearest);
    root.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });  // a finger leaves as it lifts
    root.addEventListener("blur", hide);
    root.addEventListener("focus", () => { if (root.matches(":focus-visible")) show(0); });
    root.addEventListener("keydown", (event) => {
      const moves = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: 0, End: stops.length - 1 };
      if (event.key === "Escape") hide();
      else if (event.key in moves) { show(Math.max(0, Math.min(stops.length - 1, moves[event.key]))); event.preventDefault(); }
    });
  }

  function draw(holder) {
    const chart = data.charts[Number(holder.dataset.chart)], panels = visible(chart);
    holder.replaceChildren();
    if (!panels.length) return void html("p", "note", holder, "No method that this figure shows is picked.");
    if (holder.clientWidth < SMALLEST) return;  // not laid out yet; the observer calls again
    if (chart.ylabel) html("p", "up", holder, `\u2191 ${chart.ylabel}`);
    const total = holder.clientWidth, across = Math.max(1, Math.min(panels.length, Math.floor(total / 330))), width = Math.floor((total - (across - 1) * 26) / across);
    const grid = html("div", "panels", holder);
    grid.style.gridTemplateColumns = `repeat(${across}, minmax(0, 1fr))`;
    for (const panel of panels) {
      const cell = html("div", "", grid);
      if (panel.name) html("p", "panel-title", cell, `${chart.facet} = ${panel.name}`);
      const limits = range(chart, chart.shared ? panels : [panel]);
      const yTicks = chart.log ? decades(...limits) : ticks(...limits, 6);
      const texts = panel.series.flatMap((series) => series.points.map((point) => widthOf(number(point[1]))));
      const canvas = frame(chart, width, limits, yTicks, grouped(chart) ? Math.max(40, ...texts.map((long) => long + 6)) : 10);
      const stops = (grouped(chart) ? drawBars : drawLines)(chart, panel, canvas, limits);
      canvas.root.setAttribute("aria-label", `${chart.title}${panel.name ? `, ${chart.facet} ${panel.name}` : ""}: ${panel.series.map((s) => s.name).join(", ")}. Arrow keys read the values.`);
      cell.append(canvas.root);
      readable(canvas.root, width, stops);
    }
    const legend = html("ul", "legend", holder);
    const named = new Map(panels.flatMap((panel) => panel.series.map((series) => [series.name, series.look])));
    for (const [name, look] of named) { const item = html("li", "", legend); swatch(look, chart.kind, item); item.append(name); }
  }

  // ---- the reader's choices
  const holders = [...document.querySelectorAll(".chart")];
  function update() {
    tip.hidden = true;
    holders.forEach(draw);
    for (const row of document.querySelectorAll("tr[data-method]")) row.hidden = !picked.has(row.dataset.method);
  }
  function makePicker() {
    const picker = document.getElementById("picker");
    if (data.methods.length < 2) return;
    const boxes = data.methods.map((method) => {
      const label = html("label", "", picker), input = html("input", "", label);
      Object.assign(input, { type: "checkbox", checked: true, value: method.name });
      swatch(method.look, "lines", label);
      label.append(method.name);
      input.addEventListener("change", () => { if (input.checked) picked.add(method.name); else picked.delete(method.name); update(); });
      return input;
    });
    for (const [text, checked] of [["All", true], ["None", false]]) {
      const button = html("button", "", picker, text);
      button.type = "button";
      button.addEventListener("click", () => {
        for (const input of boxes) { input.checked = checked; if (checked) picked.add(input.value); else picked.delete(input.value); }
        update();
      });
    }
    picker.hidden = false;
  }
  function makeTheme() {
    const root = document.documentElement, button = document.getElementById("theme"), system = matchMedia("(prefers-color-scheme: dark)");
    const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const name = () => { button.textContent = dark() ? "Light scheme" : "Dark scheme"; };
    button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
    system.addEventListener("change", name);
    name();
    button.hidden = false;
  }
  const hints = new ResizeObserver((all) => {
    for (const { target } of all) target.previousElementSibling.hidden = target.scrollWidth <= target.clientWidth;
  });
  for (const box of document.querySelectorAll(".scroll")) hints.observe(box);
  defineHatches();
  makePicker();
  makeTheme();
  update();
  let known = document.body.clientWidth;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (document.body.clientWidth !== known) { known = document.body.clientWidth; update(); }
  })).observe(document.body);
})();
