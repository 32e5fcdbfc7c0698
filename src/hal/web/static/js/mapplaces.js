// Where the cells of the map are: grouped by topology, as large as all of them fit. Pure.
const GAP = 6, LANE = 22, TITLE = 18, MOST_CELL = 20, LEAST_CELL = 4;

// Blocks of one domain each, under the title of what is around them.
function groups(nodes) {
  const tops = new Map();
  nodes.names.forEach((_, at) => {
    const path = nodes.d[at] >= 0 ? nodes.domains[nodes.d[at]] : "";
    const cut = path.indexOf("/");
    const top = cut < 0 ? (nodes.levels.length > 1 || !path ? path : "") : path.slice(0, cut);
    const key = cut < 0 && top === path ? "" : path;
    if (!tops.has(top)) tops.set(top, new Map());
    const blocks = tops.get(top);
    if (!blocks.has(key)) blocks.set(key, []);
    blocks.get(key).push(at);
  });
  const order = new Intl.Collator(undefined, { numeric: true }).compare;
  return [...tops].sort((a, b) => order(a[0] || "\uffff", b[0] || "\uffff")).map(([top, blocks]) => ({
    title: top || (tops.size > 1 ? "elsewhere" : ""),
    blocks: [...blocks].sort((a, b) => order(a[0], b[0])).map(([path, members]) => ({ path, members })),
  }));
}

// Place the cells; the largest size with which all fit.
export function place(nodes, width, most) {
  const tops = groups(nodes), xs = new Float32Array(nodes.names.length), ys = new Float32Array(nodes.names.length);
  // Groups beside one another in so many lanes, each into the lane that is shortest.
  const lay = (cell, lanes) => {
    const wide = Math.floor((width - LANE * (lanes - 1)) / lanes), ends = new Array(lanes).fill(0), titles = [], boxes = [];
    for (const { title, blocks } of tops) {
      const lane = ends.indexOf(Math.min(...ends)), left = lane * (wide + LANE);
      let y = ends[lane], x = 0, tallest = 0;
      if (title) { titles.push([title, left, y + 12]); y += TITLE; }
      const alone = blocks.length === 1 && blocks[0].members.length > 200;
      for (const { path, members } of blocks) {
        const most = Math.max(1, Math.floor(wide / cell)), columns = alone ? most : Math.min(most, Math.max(1, Math.ceil(Math.sqrt(members.length * 1.8))));
        const w = Math.min(columns, members.length) * cell, h = Math.ceil(members.length / columns) * cell;
        if (x > 0 && x + w > wide) { x = 0; y += tallest + GAP; tallest = 0; }
        members.forEach((at, n) => { xs[at] = left + x + (n % columns) * cell; ys[at] = y + Math.floor(n / columns) * cell; });
        boxes.push({ path, members, x: left + x, y, columns, w, h });
        x += w + GAP;
        tallest = Math.max(tallest, h);
      }
      ends[lane] = y + tallest + GAP * 1.5;
    }
    return { height: Math.max(20, Math.max(...ends) - GAP * 1.5), titles, boxes, cell, lanes };
  };
  let best = null;
  for (let lanes = 1; lanes <= Math.min(6, tops.length) && width / lanes >= 150; lanes += 1) {
    let low = LEAST_CELL, high = MOST_CELL;
    while (low <= high) {
      const middle = Math.floor((low + high) / 2), tried = lay(middle, lanes);
      if (tried.height <= most) { if (!best || middle > best.cell) best = tried; low = middle + 1; } else high = middle - 1;
    }
  }
  if (!best) best = lay(LEAST_CELL, 1);
  return { ...lay(best.cell, best.lanes), xs, ys };
}
