# A binary tree of 128 leaves, a constant-rate multicast from its root: the network of
# `cargo bench -p umbel-sim --bench forward tree`.
#
#   ns tree.tcl [packets] [Calendar|Heap|Map|List]
#
# Every link has 10 Mbit/s, 10 ms and a drop-tail queue of 50 packets; the source sends 1,000 bytes
# every millisecond. Multicast routing is ns-2's centralised one, which knows the tree at once and
# sends no packets of its own. Prints packet-hops and the seconds of processor time that they
# took, without the building of the network; fails if a receiver missed a packet.

set packets [expr {$argc > 0 ? [lindex $argv 0] : 10000}]
set depth 7

set scheduler [expr {$argc > 1 ? [lindex $argv 1] : "Calendar"}]

# Without the headers of all other protocols in every packet ns-2 is faster.
remove-all-packet-headers
add-packet-header IP RTP Common

set ns [new Simulator -multicast on]
$ns use-scheduler $scheduler
$ns rtproto Static
set root [$ns node]
set level [list $root]
set links 0
for {set d 1} {$d <= $depth} {incr d} {
    set below {}
    foreach above $level {
        for {set side 0} {$side < 2} {incr side} {
            set node [$ns node]
            $ns duplex-link $above $node 10Mb 10ms DropTail
            $ns queue-limit $above $node 50
            lappend below $node
            incr links
        }
    }
    set level $below
}

set mproto [$ns mrtproto CtrMcast {}]
set group [Node allocaddr]

set udp [new Agent/UDP]
$udp set packetSize_ 1000
$udp set dst_addr_ $group
$udp set dst_port_ 0
$ns attach-agent $root $udp
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ 1000
$cbr set interval_ 0.001
$cbr set maxpkts_ $packets
$cbr attach-agent $udp

set sinks {}
foreach leaf $level {
    set sink [new Agent/LossMonitor]
    $ns attach-agent $leaf $sink
    $ns at 0.1 "$leaf join-group $sink $group"
    lappend sinks $sink
}
# Source-rooted rather than shared trees.
$ns at 0.2 "$mproto switch-treetype $group"

source [file join [file dirname [info script]] cpu.tcl]

proc begin {} {
    global started
    set started [cpu]
}

proc finish {} {
    global sinks started links packets
    set seconds [expr {[cpu] - $started}]
    set received 0
    foreach sink $sinks { incr received [$sink set npkts_] }
    if {$received != $packets * [llength $sinks]} {
        puts stderr "received $received of [expr {$packets * [llength $sinks]}] packets"
        exit 1
    }
    puts "[expr {double($packets) * $links}] $seconds"
    exit 0
}

$ns at 1.0 "begin; $cbr start"
$ns at [expr {1.0 + $packets * 0.001 + 1.0}] "finish"
$ns run
