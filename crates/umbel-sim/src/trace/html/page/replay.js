// What the nodes have said and joined up to a moment.

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
    /** For each node: channel to when it was joined. */
    this.joined = this.run.nodes.map(() => new Map());
    /** For each node: name of a note to the latest. */
    this.latest = this.run.nodes.map(() => new Map());
  }

  /** Goes to time `t`, by way of the start if it is earlier. */
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

  /** The first value of a node's latest note of a name. */
  value(node, name) {
    return this.latest[node].get(name)?.values[0];
  }

  /** The greatest first value that a node ever gives. */
  greatest(node, name) {
    return this.most.get(`${name} ${node}`) ?? 0;
  }
}
