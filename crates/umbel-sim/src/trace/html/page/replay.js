// Notes and memberships of the nodes up to a moment.

class Replay {
  constructor(run) {
    this.run = run;
    this.reset();
    this.most = new Map();
    for (const { name, node, values } of run.notes) {
      const key = `${name} ${node}`;
      this.most.set(key, Math.max(this.most.get(key) ?? 0, values[0]));
    }
  }

  reset() {
    this.t = -1;
    this.nextNote = 0;
    this.nextMember = 0;
    /** For each node: time of joining by channel. */
    this.joined = this.run.nodes.map(() => new Map());
    /** For each node: latest note by name. */
    this.latest = this.run.nodes.map(() => new Map());
  }

  /** Moves to time `t`, by way of the start if it is earlier. */
  seek(t) {
    if (t < this.t) this.reset();
    const { notes, members } = this.run;
    for (; this.nextNote < notes.length && notes[this.nextNote].at <= t; this.nextNote++) {
      const note = notes[this.nextNote];
      this.latest[note.node].set(note.name, note);
    }
    for (; this.nextMember < members.length && members[this.nextMember].at <= t; this.nextMember++) {
      const { at, node, channel, joined } = members[this.nextMember];
      if (joined) this.joined[node].set(channel, at); else this.joined[node].delete(channel);
    }
    this.t = t;
  }

  isMember(node) {
    return this.joined[node].size > 0;
  }

  /** Returns the first value of a node's latest note of a name. */
  value(node, name) {
    return this.latest[node].get(name)?.values[0];
  }

  /** Returns the greatest first value that a node ever reports. */
  greatest(node, name) {
    return this.most.get(`${name} ${node}`) ?? 0;
  }
}
