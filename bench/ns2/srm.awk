# Compares two simulators' lines `simulator seed member latency requests repairs`, where the
# simulator is `ns2` or `umbel`, member 0 is the source, and a member without a line had no part.
#
# Prints a line for each measure: the means of the group with both, their difference with its 95 %
# interval, the number of members that differ at 5 %, that of those that can, and the greatest
# difference of a member in standard errors. Of members that do not differ one in twenty does so by
# chance. Variables: depth, place, seeds.

{
    split("latency requests repairs", name)
    for (m = 1; m <= 3; m++) {
        value = $(3 + m)
        if (value == "-") continue
        add($1, m, $3, value)
        total[$1, m, $2] += value
        parts[$1, m, $2]++
    }
    members[$3] = 1
}

function add(simulator, m, member, value) {
    sum[simulator, m, member] += value
    squares[simulator, m, member] += value * value
    count[simulator, m, member]++
}

# Sets `mean` and `error2`, the square of its standard error, for a member or the group. Requests and
# repairs that no line tells of are 0.
function estimate(simulator, m, member, n, s) {
    n = m == 1 ? count[simulator, m, member] : seeds
    s = sum[simulator, m, member]
    mean = s / n
    error2 = (squares[simulator, m, member] - s * s / n) / (n - 1) / n
    if (error2 < 0) error2 = 0
}

END {
    for (m = 1; m <= 3; m++) {
        for (s = 1; s <= 2; s++) {
            simulator = s == 1 ? "ns2" : "umbel"
            for (seed = 1; seed <= seeds; seed++) {
                value = total[simulator, m, seed]
                if (m == 1) value /= parts[simulator, m, seed]
                add(simulator, m, "group", value)
            }
        }
        estimate("ns2", m, "group"); ours = mean; variance = error2
        estimate("umbel", m, "group")
        header = sprintf("%d %-8s %-8s %7.3f %7.3f %+7.3f ± %.3f", depth, place, name[m], ours, mean,
            mean - ours, 1.96 * sqrt(variance + error2))
        differ = compared = greatest = 0
        for (member in members) {
            if (m == 1 && !(count["ns2", m, member] && count["umbel", m, member])) continue
            estimate("ns2", m, member); ours = mean; variance = error2
            estimate("umbel", m, member)
            if (variance + error2 == 0) {
                if (mean != ours) { differ++; compared++; greatest = "inf" }
                continue
            }
            compared++
            z = (mean - ours) / sqrt(variance + error2)
            if (z < 0) z = -z
            if (z > 1.96) differ++
            if (z > greatest) greatest = z
        }
        printf "%s %3d of %2d %5.1f\n", header, differ, compared, greatest
    }
}
