# Tells what came of a run of RLM, from `level TIME RECEIVER LEVEL` at each change of a receiver's
# level and `packets RECEIVER GOT LOST` or `loss RECEIVER SHARE`, in the order of time.
#
# Prints a line `simulator class measure value` for each measure and class of receivers, the mean of
# the class: the mean level in the part that is measured, seconds from the start of a receiver until
# it reaches its best level, how often it tried the next one, and per cent of packets lost. The first
# `fast` receivers have a best level of 5, the others of 4. Variables: simulator, fast, and duration
# and measured in seconds.

function best(receiver) { return receiver <= fast ? 5 : 4 }

# Counts the time since the last change, in the part that is measured.
function account(receiver, now, from) {
    from = since[receiver] > duration - measured ? since[receiver] : duration - measured
    if (now > from) levels[receiver] += (now - from) * level[receiver]
    since[receiver] = now
}

$1 == "level" {
    receiver = $3
    if (!(receiver in start)) start[receiver] = $2
    account(receiver, $2)
    if ($4 > level[receiver] && $4 == best(receiver) + 1) tried[receiver]++
    if ($4 >= best(receiver) && !(receiver in reached)) reached[receiver] = $2 - start[receiver]
    level[receiver] = $4
}

$1 == "packets" { loss[$2] = $4 / ($3 + $4) }
$1 == "loss" { loss[$2] = $3 }

END {
    for (receiver in start) {
        account(receiver, duration)
        class = receiver <= fast ? "fast" : "slow"
        count[class]++
        sum[class, "level"] += levels[receiver] / measured
        # Who never got there counts with all of its time.
        sum[class, "reached"] += receiver in reached ? reached[receiver] : duration - start[receiver]
        sum[class, "tried"] += tried[receiver]
        sum[class, "loss"] += 100 * loss[receiver]
    }
    for (class in count)
        for (n = split("level reached tried loss", name); n >= 1; n--)
            print simulator, class, name[n], sum[class, name[n]] / count[class]
}
