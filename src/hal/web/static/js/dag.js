// The layout of a graph of jobs, few or 100,000: layers by what comes first, boxes of jobs that are alike. Pure.
//
// A box is one job, or all jobs of one layer and name (numbers aside); of very deep graphs several layers are one, of
// graphs with very many names all of a layer. So there are never more than `MOST_BOXES` boxes, whatever the graph.
const FEW = 90, MOST_BOXES = 180, MOST_BANDS = 48;

const stemOf = (name) => name.replace(/\d+/g, "#");

// The columns of the API with what is looked up again and again: depth of each job, and its neighbours as ranges.
export function readGraph(data) {
  const n = data.ids.length, edges = data.before.length, out = new Int32Array(n + 1), waits = new Int32Array(n);
  for (let e = 0; e < edges; e += 1) { out[data.before[e] + 1] += 1; waits[data.after[e]] += 1; }
  for (let i = 0; i < n; i += 1) out[i + 1] += out[i];
  const fill = out.slice(), to = new Int32Array(edges), depth = new Int32Array(n), queue = new Int32Array(n), left = waits.slice();
  for (let e = 0; e < edges; e += 1) { to[fill[data.before[e]]] = data.after[e]; fill[data.before[e]] += 1; }
  let head = 0, tail = 0;
  for (let i = 0; i < n; i += 1) if (!left[i]) { queue[tail] = i; tail += 1; }
  while (head < tail) {
    const i = queue[head];
    head += 1;
    for (let k = out[i]; k < out[i + 1]; k += 1) {
      const j = to[k];
      if (depth[j] < depth[i] + 1) depth[j] = depth[i] + 1;
      left[j] -= 1;
      if (!left[j]) { queue[tail] = j; tail += 1; }
    }
  }
  const stems = new Map(), stem = data.names.map((name) => { const text = stemOf(name); if (!stems.has(text)) stems.set(text, stems.size); return stems.get(text); });
  return { ...data, n, depth, stem, stems: [...stems.keys()], deepest: depth.reduce((a, b) => Math.max(a, b), 0) };
}

// Boxes and lines of some of the jobs: {boxes: [{key, members, column, row, single, title}], lines: [[from, to, many]], columns}.
export function layout(graph, members, opened) {
  const bands = Math.max(1, Math.ceil((graph.deepest + 1) / MOST_BANDS)), single = members.length <= FEW;
  let lowest = graph.deepest;
  for (const i of members) lowest = Math.min(lowest, graph.depth[i]);
  // A few jobs are drawn by their own layers, whatever the depth of the rest.
  const layers = [...new Set(members.map ? Array.from(members, (i) => graph.depth[i]) : [])].sort((a, b) => a - b), rank = new Map(layers.map((depth, at) => [depth, at]));
  const band = (i) => (single || layers.length <= MOST_BANDS ? rank.get(graph.depth[i]) : Math.floor((graph.depth[i] - lowest) / bands));
  const grouped = (by) => {
    const found = new Map();
    for (const i of members) {
      const key = by(i);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(i);
    }
    return found;
  };
  const byName = (i) => `${band(i)} ${graph.stem[graph.name[i]]}`;
  let groups = single ? grouped((i) => `job ${graph.ids[i]}`) : grouped((i) => (opened.has(byName(i)) ? `job ${graph.ids[i]}` : byName(i))), named = true;
  if (groups.size > MOST_BOXES + opened.size * FEW) { groups = grouped((i) => `${band(i)} all`); named = false; }
  const boxes = [], where = new Int32Array(graph.n).fill(-1), used = [];
  for (const [key, list] of groups) {
    const column = band(list[0]), one = list.length === 1, i = list[0];
    list.forEach((member) => { where[member] = boxes.length; });
    boxes.push({ key, members: list, column, single: one, title: one ? graph.names[graph.name[i]] : named ? graph.stems[graph.stem[graph.name[i]]] : "jobs", at: boxes.length, weight: 0, ties: 0 });
  }
  const lines = new Map();
  for (let e = 0; e < graph.before.length; e += 1) {
    const a = where[graph.before[e]], b = where[graph.after[e]];
    if (a < 0 || b < 0 || a === b) continue;
    const key = a * boxes.length + b;
    lines.set(key, (lines.get(key) || 0) + 1);
  }
  const found = [...lines].map(([key, many]) => [Math.floor(key / boxes.length), key % boxes.length, many]);
  order(boxes, found);
  for (const box of boxes) { box.row = used[box.column] || 0; used[box.column] = box.row + 1; }
  const rows = Math.max(1, ...used.filter(Boolean));
  for (const box of boxes) box.row += (rows - used[box.column]) / 2; // in the middle of its column
  return { boxes, lines: found, columns: used.length, rows };
}

// Within a column boxes are where those before them are: the mean of their places, twice from left to right.
function order(boxes, lines) {
  const place = Float64Array.from(boxes, (box) => box.at);
  const into = boxes.map(() => []);
  lines.forEach(([a, b]) => into[b].push(a));
  for (let pass = 0; pass < 2; pass += 1) {
    boxes.sort((x, y) => x.column - y.column || place[x.at] - place[y.at]);
    let column = -1, row = 0;
    for (const box of boxes) {
      if (box.column !== column) { column = box.column; row = 0; }
      place[box.at] = row;
      row += 1;
    }
    for (const box of boxes) if (into[box.at].length) place[box.at] = into[box.at].reduce((sum, a) => sum + place[a], 0) / into[box.at].length;
    boxes.sort((x, y) => x.column - y.column || place[x.at] - place[y.at]);
  }
  const moved = new Int32Array(boxes.length);
  boxes.forEach((box, n) => { moved[box.at] = n; });
  lines.forEach((line) => { line[0] = moved[line[0]]; line[1] = moved[line[1]]; });
  boxes.forEach((box, n) => { box.at = n; });
}

// Jobs of a list by state: {state: count}.
export function countsOf(graph, members) {
  const found = {};
  for (const i of members) { const state = graph.states[graph.state[i]]; found[state] = (found[state] || 0) + 1; }
  return found;
}

// Jobs that match: by number, or by a part of the name or the state.
export function search(graph, text) {
  const low = text.trim().toLowerCase(), found = [];
  if (!low) return found;
  const id = /^#?\d+$/.test(low) ? Number(low.replace("#", "")) : -1;
  const named = graph.names.map((name) => name.toLowerCase().includes(low)), stated = graph.states.map((state) => state === low);
  for (let i = 0; i < graph.n; i += 1) if (graph.ids[i] === id || named[graph.name[i]] || stated[graph.state[i]]) found.push(i);
  return found;
}
