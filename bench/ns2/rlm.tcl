# RLM by ns-2's own agents (class MMG), which are those of the paper's authors.
#
#   ns rlm.tcl FAST SLOW SEED 0|1
#
# The source is behind a link of 1.5 Mbit/s with a queue of 20 packets. Below its router each receiver
# has a link of its own: FAST ones without a limit, SLOW ones of 750 kbit/s. Receivers start between
# 30 s and 2 min; a run has 10 minutes. With 1 the join-timer is drawn anew when a layer is dropped.
# Prints `level TIME RECEIVER LEVEL` at each change, and `packets RECEIVER GOT LOST` at the end.
#
# There are seven layers of 32, 64 … 2,048 kbit/s, of which five fit: with six the agents would have
# no join-timer any more after the first try of the sixth.

foreach {fast slow seed redraw} $argv break
set ns [new Simulator -multicast on]
# The first number that ns-2 draws is in proportion to the seed: with 1, 2, 3 … it is nearly 0.
ns-random [expr {$seed * 1000003}]
set draw [new RNG]
$draw seed [expr {$seed * 7919}]

# What the agents call and ns-2 no longer has: an exponential time that is cut off at four times its
# mean, and a way to put an agent on a node.
proc trunc_exponential {mean} {
    global draw
    while 1 {
        set time [$draw exponential $mean]
        if {$time <= 4 * $mean} { return $time }
    }
}
Simulator instproc create-agent {node type class} {
    set agent [new $type]
    $self attach-agent $node $agent
    return $agent
}

# A receiver: the agents as they are, with a record of levels, and with today's names for the address
# of the control group.
Class Member -superclass MMG/ns
Member instproc init {ns number node control layers} {
    $self set number $number
    $self next $ns $node $control $layers
    [$self set ctrl_] set dst_addr_ $control
    [$self set ctrl_] set dst_port_ 0
}
Member instproc add-layer {} {
    $self next
    $self record
}
Member instproc drop-layer {} {
    global redraw
    $self next
    $self record
    if {$redraw} {
        $self cancel_timer TJ
        $self set_TJ_timer
    }
}
Member instproc record {} {
    set time [[$self set ns_] now]
    puts [format "level %.6f %d %d" $time [$self set number] [$self set subscription_]]
}

set source [$ns node]
set router [$ns node]
$ns duplex-link $source $router 1.5Mb 10ms DropTail
$ns queue-limit $source $router 20
set nodes {}
for {set n 1} {$n <= $fast + $slow} {incr n} {
    set node [$ns node]
    $ns simplex-link $node $router 1000Mb 10ms DropTail
    if {$n <= $fast} {
        $ns simplex-link $router $node 1000Mb 10ms DropTail
    } else {
        $ns simplex-link $router $node 750kb 10ms DropTail
        $ns queue-limit $router $node 20
    }
    lappend nodes $node
}

# Joins and leaves travel up the tree, and what was pruned stays so.
DM set PruneTimeout 1000
$ns mrtproto DM {}
set control [Node allocaddr]
set layers {}
for {set layer 0} {$layer < 7} {incr layer} {
    set group [Node allocaddr]
    lappend layers $group
    set udp [new Agent/UDP]
    $udp set packetSize_ 1000
    $udp set dst_addr_ $group
    $udp set dst_port_ 0
    $ns attach-agent $source $udp
    set cbr [new Application/Traffic/CBR]
    $cbr set packetSize_ 1000
    $cbr set rate_ [expr {32 << $layer}]kb
    # Distances vary by up to a half, as in the paper.
    $cbr set random_ 1
    $cbr attach-agent $udp
    $ns at [$draw uniform 0 0.2] "$cbr start"
}

set number 0
foreach node $nodes {
    incr number
    set start [$draw uniform 30 120]
    $ns at $start "set member($number) \[new Member $ns $number $node $control {$layers}\]"
}
proc finish {} {
    global member
    foreach number [array names member] {
        puts "packets $number [$member($number) mmg_pkts] [$member($number) mmg_loss]"
    }
    exit 0
}
$ns at 600.0 finish
$ns run
