# Draws a network and its losses, for both simulators: a binary tree of routers with the source at
# its root and a receiver below each router of the last level, `depth` links below the root. Every
# link has 100 Mbit/s and a delay from 5 to 15 ms. On each link one packet is lost on its way down,
# and no packet on two links. The packets between show what is missing.
#
# Variables: depth, seed, tcl (the file for ns-2), toml (that for umbel, without the protocol).
BEGIN {
    srand(seed)
    routers = 2 ^ depth - 1
    hosts = 2 ^ depth
    links = 2 * routers
    # Link n leads down to node n + 1: the routers in the order of their levels, then the hosts.
    for (n = 1; n <= links; n++) {
        delay[n] = 5000 + int(10000 * rand())
        lost[n] = 2 * n
    }
    for (n = links; n > 1; n--) {
        other = 1 + int(n * rand())
        swap = lost[n]; lost[n] = lost[other]; lost[other] = swap
    }
    printf "set depth %d\nset packets %d\n", depth, 2 * links + 2 > tcl
    print "duration = \"1h\"\n[[topology.host]]\nname = \"source\"" > toml
    for (n = 1; n <= hosts; n++) printf "[[topology.host]]\nname = \"h%d\"\n", n > toml
    for (n = 1; n <= routers; n++) printf "[[topology.router]]\nname = \"r%d\"\n", n > toml
    print "[[topology.link]]\na = \"source\"\nb = \"r1\"" > toml
    for (n = 1; n <= links; n++) {
        above = int((n + 1) / 2)
        name = n < routers ? "r" (n + 1) : "h" (n + 1 - routers)
        # The number of the packet on this link: those that were lost above do not come.
        nth = lost[n]
        for (up = above - 1; up > 0; up = parent(up)) nth -= lost[up] < lost[n]
        printf "[[topology.link]]\na = \"r%d\"\nb = \"%s\"\nrate = \"100M\"\ndelay = \"%dus\"\nqueue = 50\n",
            above, name, delay[n] > toml
        drops = drops sprintf("[[drop]]\nlink = [\"r%d\", \"%s\"]\nnth = [%d]\n", above, name, nth)
        # Sequence numbers of ns-2 begin at 0.
        printf "lappend tree {%d %d %dus %d %d}\n", above, n + 1, delay[n], lost[n] - 1, nth > tcl
    }
    for (n = routers; n <= links; n++) {
        far = 0
        for (up = n; up > 0; up = parent(up)) far += delay[up]
        printf "lappend far %d\n", far > tcl
    }
    printf "%s", drops > toml
}

# Returns the link above another, or 0.
function parent(link) {
    return int((link + 1) / 2) - 1
}
