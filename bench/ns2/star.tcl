# The traffic of examples/sim/base-case.toml, as far as ns-2 can express it: a star whose links lose
# 5 % each, and a source that multicasts 1,400 bytes every 80 ms to the ten or so clients that are
# there at a time. No repository: nobody asks, nothing is chosen, encoded or repaired.
#
#   ns star.tcl [packets] [Calendar|Heap|Map|List]
#
# Prints packet-hops and the seconds of processor time that they took, without the building of the
# network.

source [file join [file dirname [info script]] network.tcl]

set packets [expr {$argc > 0 ? [lindex $argv 0] : 20748}]
set scheduler [expr {$argc > 1 ? [lindex $argv 1] : "Calendar"}]
set receivers 10

remove-all-packet-headers
add-packet-header IP RTP Common

set ns [new Simulator -multicast on]
$ns use-scheduler $scheduler
$ns rtproto Static
set source [$ns node]
set hub [$ns node]
$ns duplex-link $source $hub 140kb 0ms DropTail
set group [Node allocaddr]

set cbr [constant_rate $ns $source $group 1400 0.08 $packets]

set sinks {}
for {set n 0} {$n < $receivers} {incr n} {
    set node [$ns node]
    $ns duplex-link $hub $node 10Mb 0ms DropTail
    set loss [new ErrorModel]
    $loss set rate_ 0.05
    $loss drop-target [new Agent/Null]
    $ns lossmodel $loss $hub $node
    lappend sinks [receiver $ns $node $group]
}
# The routing knows only nodes that exist when it is made.
set mproto [$ns mrtproto CtrMcast {}]
$ns at 0.2 "$mproto switch-treetype $group"

proc finish {} {
    global sinks started packets
    set seconds [expr {[cpu] - $started}]
    set share [expr {double([received $sinks]) / ($packets * [llength $sinks])}]
    if {$share < 0.94 || $share > 0.96} {
        puts stderr "received $share of the packets, not 0.95"
        exit 1
    }
    puts "[expr {double($packets) * (1 + [llength $sinks])}] $seconds"
    exit 0
}

$ns at 1.0 "set started \[cpu\]; $cbr start"
$ns at [expr {1.0 + $packets * 0.08 + 1.0}] "finish"
$ns run
