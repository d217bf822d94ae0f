// The recording, unpacked for quick answers to "which packets are under way at t?".

const FATE = { arrived: 0, lost: 1, queue: 2, down: 3, noRoute: 4, hopLimit: 5 };
const KIND_ORDER = ["data", "repair", "nak", "control", "announcement"];
const SESSION = "session";
/** Number of packets whose latest arrival is stored together. */
const BLOCK = 256;

/** Returns the index of the first element above `value` in a sorted array. */
function upperBound(sorted, value) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle] <= value) low = middle + 1; else high = middle;
  }
  return low;
}

class Run {
  constructor(json) {
    this.title = json.title;
    this.wholeEnd = json.end;
    this.cut = json.cut;
    this.allHops = json.hops;
    this.stretch = json.stretch;
    this.nodes = json.nodes.map(([name, kind, x, y, side, address]) => ({ name, kind, x, y, side, address }));
    const direction = ([delay, bits, schedule]) => ({ delay, bits, schedule });
    this.links = json.links.map(([a, b, ab, ba]) => ({ a, b, directions: [direction(ab), direction(ba)] }));
    this.channels = json.channels;
    this.names = json.names;
    this.notes = json.notes.map(([at, node, name, values]) => ({ at, node, name, values }));
    this.messages = json.messages.map(([at, took, from, to, bytes]) => ({ at, end: at + took, from, to, bytes }));
    this.members = json.members.map(([at, node, channel, joined]) => ({ at, node, channel, joined }));
    this.unpackClasses(json);
    this.unpackPackets(json.packets);
    this.findEnd();
    this.sources = new Set(this.classes.filter(({ kind }) => this.kinds[kind] === "data").map(({ source }) => source));
    this.countKinds();
    this.listEvents();
    this.listSteps();
    this.findBusyTimes();
  }

  unpackClasses(json) {
    const rank = (kind) => (KIND_ORDER.indexOf(kind) + 1) || 100;
    const kinds = new Set(json.classes.map(([kind]) => kind));
    this.kinds = [...kinds].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
    if (this.messages.length > 0) this.kinds.push(SESSION);
    this.classes = json.classes.map(([kind, flow, source, destination, channel, bytes]) =>
      ({ kind: this.kinds.indexOf(kind), flow, source, destination, channel, bytes }));
  }

  unpackPackets(columns) {
    const count = columns.at.length;
    this.count = count;
    this.at = new Float64Array(count);
    this.arrives = new Float64Array(count);
    this.departs = new Float64Array(count);
    this.way = Int32Array.from(columns.way);
    this.classOf = Uint32Array.from(columns.class);
    this.id = Float64Array.from(columns.id);
    this.fate = Uint8Array.from(columns.fate);
    this.blockEnd = new Float64Array(Math.ceil(count / BLOCK));
    let at = 0;
    for (let i = 0; i < count; i++) {
      at += columns.at[i];
      this.at[i] = at;
      this.arrives[i] = at + columns.took[i];
      this.departs[i] = Math.max(at, this.arrives[i] - this.transit(i));
      const block = Math.floor(i / BLOCK);
      this.blockEnd[block] = Math.max(this.blockEnd[block], this.arrives[i]);
    }
    const took = Float64Array.from(columns.took.filter((t) => t > 0)).sort();
    this.usualTransit = took.length > 0 ? took[took.length >> 1] : this.wholeEnd / 20;
  }

  /** The page ends with the recording, or soon after the last event. */
  findEnd() {
    this.last = 0;
    const reach = (time) => (this.last = Math.max(this.last, time));
    this.arrives.forEach(reach);
    for (const { end } of this.messages) reach(end);
    for (const { at } of [...this.notes, ...this.members]) reach(at);
    const soon = this.last * 1.03 + 5 * this.usualTransit;
    this.end = Math.max(this.cut ?? Math.min(this.wholeEnd, soon), 1);
  }

  /** Returns the time that packet `i` spends on its link after its turn has come. */
  transit(i) {
    const direction = this.directionOf(this.way[i]);
    if (!direction) return 0;
    const bits = this.classes[this.classOf[i]].bytes * 8;
    return direction.delay + (direction.bits > 0 ? (bits * 1e9) / direction.bits : 0);
  }

  /** Returns the properties of one way of a link; nothing for a node's own way. */
  directionOf(way) {
    return way < 0 ? null : this.links[way >> 1].directions[way & 1];
  }

  /** Returns both ends of a way, or the node of a node's own way twice. */
  ends(way) {
    if (way < 0) return [-1 - way, -1 - way];
    const { a, b } = this.links[way >> 1];
    return way & 1 ? [b, a] : [a, b];
  }

  kindOf(i) {
    return this.classes[this.classOf[i]].kind;
  }

  /** Returns when packet `i` was dropped: at once, or at the far end of the link that it had entered. */
  droppedAt(i) {
    return this.arrives[i];
  }

  /** Calls `visit` with each packet that was under way between two times. */
  visit(from, to, visit) {
    const upper = upperBound(this.at, to);
    for (let block = 0; block * BLOCK < upper; block++) {
      if (this.blockEnd[block] < from) continue;
      const end = Math.min((block + 1) * BLOCK, upper);
      for (let i = block * BLOCK; i < end; i++) {
        if (this.arrives[i] >= from) visit(i);
      }
    }
  }

  /** Returns for each kind the times at which packets entered links, left them and were dropped. */
  countKinds() {
    this.entered = this.kinds.map(() => []);
    this.left = this.kinds.map(() => []);
    this.dropped = this.kinds.map(() => []);
    for (let i = 0; i < this.count; i++) {
      const kind = this.kindOf(i);
      const crossed = this.arrives[i] > this.at[i] || this.fate[i] <= FATE.lost;
      if (crossed) {
        this.entered[kind].push(this.at[i]);
        this.left[kind].push(this.arrives[i]);
      }
      if (this.fate[i] !== FATE.arrived) this.dropped[kind].push(this.droppedAt(i));
    }
    if (this.messages.length > 0) {
      this.entered[this.kinds.length - 1] = this.messages.map((message) => message.at);
      this.left[this.kinds.length - 1] = this.messages.map((message) => message.end);
    }
    const sorted = (times) => Float64Array.from(times).sort();
    this.hops = this.kinds.reduce((sum, name, kind) => sum + (name === SESSION ? 0 : this.entered[kind].length), 0);
    this.entered = this.entered.map(sorted);
    this.left = this.left.map(sorted);
    this.dropped = this.dropped.map(sorted);
  }

  /** Returns all events that the list shows. */
  listEvents() {
    this.events = [];
    const add = (type, at, index) => this.events.push({ type, at, index });
    this.notes.forEach((note, index) => add("note", note.at, index));
    this.members.forEach((member, index) => add(member.joined ? "join" : "leave", member.at, index));
    this.messages.forEach((message, index) => add("message", message.at, index));
    for (let i = 0; i < this.count; i++) {
      if (this.fate[i] !== FATE.arrived) add("drop", this.droppedAt(i), i);
    }
    this.events.sort((a, b) => a.at - b.at);
  }

  /** Returns all moments at which something begins or ends, once each. */
  listSteps() {
    const times = [0, this.end];
    for (const message of this.messages) times.push(message.end);
    for (const event of this.events) times.push(event.at);
    const all = new Float64Array(times.length + 2 * this.count);
    all.set(times);
    all.set(this.at, times.length);
    all.set(this.arrives, times.length + this.count);
    all.sort();
    this.steps = all.filter((time, i) => time <= this.end && (i === 0 || time !== all[i - 1]));
  }

  /** Returns the times in which something is under way, joined to intervals. */
  findBusyTimes() {
    const spans = this.events.map((event) => [event.at, event.at]);
    for (const message of this.messages) spans.push([message.at, message.end]);
    for (let i = 0; i < this.count; i++) spans.push([this.at[i], this.arrives[i]]);
    spans.sort((a, b) => a[0] - b[0]);
    this.busyFrom = [];
    this.busyTo = [];
    for (const [from, to] of spans) {
      const last = this.busyTo.length - 1;
      if (last >= 0 && from <= this.busyTo[last]) {
        this.busyTo[last] = Math.max(this.busyTo[last], to);
      } else {
        this.busyFrom.push(from);
        this.busyTo.push(to);
      }
    }
    this.busyTime = this.busyFrom.reduce((sum, from, i) => sum + this.busyTo[i] - from, 0);
  }

  /** If nothing is under way at `t`, returns the begin and the end of that gap. */
  quiet(t) {
    const next = upperBound(this.busyFrom, t);
    const since = next > 0 ? this.busyTo[next - 1] : 0;
    return t < since ? null : { since, until: this.busyFrom[next] ?? this.end };
  }

  /** Returns whether a link's way is up, which it is unless its schedule says otherwise. */
  isUp(way, t) {
    const { schedule } = this.directionOf(way);
    let up = true;
    for (const [at, state] of schedule) {
      if (at > t) break;
      up = state;
    }
    return up;
  }

  nodeName(node) {
    return this.nodes[node].name || this.nodes[node].address;
  }
}
