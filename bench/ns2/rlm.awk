# Compares lines `simulator class measure value`, one for each run, where the simulator is `ns2` or
# `umbel`. Runs of the two have nothing in common but the network.
#
# Prints for each class and measure the means, their difference with its 95 % interval, and `same` if
# the interval lies within a tenth of ns-2's mean, `differs` if it lies outside, else `undecided`.
# Variable: title.

{
    n[$1, $2, $3]++
    sum[$1, $2, $3] += $4
    squares[$1, $2, $3] += $4 * $4
    classes[$2] = 1
}

# Sets `mean` and `error2`, the square of its standard error.
function estimate(simulator, class, measure, k, s) {
    k = n[simulator, class, measure]
    s = sum[simulator, class, measure]
    mean = s / k
    error2 = (squares[simulator, class, measure] - s * s / k) / (k - 1) / k
    if (error2 < 0) error2 = 0
}

END {
    measures = split("level reached tried loss", name)
    split("fast slow", class)
    for (c = 1; c <= 2; c++) {
        if (!(class[c] in classes)) continue
        for (m = 1; m <= measures; m++) {
            estimate("ns2", class[c], name[m]); theirs = mean; variance = error2
            estimate("umbel", class[c], name[m])
            half = 1.96 * sqrt(variance + error2)
            difference = mean - theirs
            limit = theirs / 10
            verdict = "undecided"
            if (difference - half > -limit && difference + half < limit) verdict = "same"
            if (difference - half > limit || difference + half < -limit) verdict = "differs"
            printf "%-8s %-5s %-8s %9.3f %9.3f %+9.3f ± %-8.3f %s\n", title, class[c], name[m],
                theirs, mean, difference, half, verdict
        }
    }
}
