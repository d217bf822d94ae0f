# Compares two simulators run by run, from lines `simulator seed member latency requests repairs
# duplicates`. The simulator is `ns2` or `umbel`, member 0 is the source, and `-` is no latency.
#
# Prints a line for each measure: the means of the group with both, their difference with its 95 %
# interval over the seeds, how many members are the same, differ or are undecided, and the greatest
# difference of a member's means. A member is the same if the interval of its difference lies within
# 5 % of ns-2's mean; it differs if the interval excludes 0 and does not lie within. The group's
# latency is the mean of its members', its other measures are sums.
#
# Variables: title, seeds.

BEGIN { split("latency requests repairs duplicates", name) }

{
    for (m = 1; m <= 4; m++) {
        if ($(3 + m) == "-") continue
        value[$1, m, $3, $2] = $(3 + m)
        group[$1, m, $2] += $(3 + m)
        parts[$1, m, $2]++
    }
    members[$3] = 1
}

# Sets `ours` and `theirs`, the means of a member over the seeds in which both have a value, and
# `half`, half the interval of their difference. Returns the number of these seeds.
function compare(m, member, n, seed, difference, sum, squares) {
    ours = theirs = 0
    for (seed = 1; seed <= seeds; seed++) {
        if (!(("ns2", m, member, seed) in value && ("umbel", m, member, seed) in value)) continue
        difference = value["umbel", m, member, seed] - value["ns2", m, member, seed]
        ours += value["umbel", m, member, seed]
        theirs += value["ns2", m, member, seed]
        sum += difference
        squares += difference * difference
        n++
    }
    if (n < 2) return n
    ours /= n
    theirs /= n
    variance = (squares - sum * sum / n) / (n - 1) / n
    # The quantile of Student's t, to 0.01 from 10 seeds on.
    half = (1.96 + 2.4 / (n - 1)) * sqrt(variance > 0 ? variance : 0)
    return n
}

END {
    for (m = 1; m <= 4; m++) {
        for (s = 1; s <= 2; s++) {
            simulator = s == 1 ? "ns2" : "umbel"
            for (seed = 1; seed <= seeds; seed++) {
                value[simulator, m, "group", seed] = \
                    group[simulator, m, seed] / (m == 1 ? parts[simulator, m, seed] : 1)
            }
        }
        same = differ = undecided = greatest = 0
        for (member in members) {
            if (compare(m, member) < 2) continue
            margin = 0.05 * theirs
            low = ours - theirs - half
            high = ours - theirs + half
            if (low >= -margin && high <= margin) same++
            else if (low > 0 || high < 0) differ++
            else undecided++
            off = ours > theirs ? ours - theirs : theirs - ours
            if (off > greatest) greatest = off
        }
        compare(m, "group")
        printf "%s %-10s %8.3f %8.3f %+8.3f ± %-7.3f %3d same %3d differ %3d undecided %8.3f\n", title,
            name[m], theirs, ours, ours - theirs, half, same, differ, undecided, greatest
    }
}
