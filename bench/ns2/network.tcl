# What several networks have.

# A binary tree below `root`; gives its leaves. Every link has 10 Mbit/s, 10 ms and a drop-tail queue
# of 50 packets.
proc binary_tree {ns root depth} {
    set level [list $root]
    for {set d 1} {$d <= $depth} {incr d} {
        set below {}
        foreach above $level {
            for {set side 0} {$side < 2} {incr side} {
                set node [$ns node]
                $ns duplex-link $above $node 10Mb 10ms DropTail
                $ns queue-limit $above $node 50
                lappend below $node
            }
        }
        set level $below
    }
    return $level
}

# An application at `node` that multicasts so many packets at a constant rate, once it is started.
proc constant_rate {ns node group bytes interval packets} {
    set udp [new Agent/UDP]
    $udp set packetSize_ $bytes
    $udp set dst_addr_ $group
    $udp set dst_port_ 0
    $ns attach-agent $node $udp
    set cbr [new Application/Traffic/CBR]
    $cbr set packetSize_ $bytes
    $cbr set interval_ $interval
    $cbr set maxpkts_ $packets
    $cbr attach-agent $udp
    return $cbr
}

# Has `node` join the group at 0.1 s; gives what counts the packets that come.
proc receiver {ns node group} {
    set sink [new Agent/LossMonitor]
    $ns attach-agent $node $sink
    $ns at 0.1 "$node join-group $sink $group"
    return $sink
}

# Packets that all of them got.
proc received {sinks} {
    set received 0
    foreach sink $sinks { incr received [$sink set npkts_] }
    return $received
}

# Seconds of processor time, so that other work on the machine counts less.
proc cpu {} {
    set file [open /proc/self/schedstat]
    set ns [lindex [read $file] 0]
    close $file
    return [expr {$ns / 1e9}]
}
