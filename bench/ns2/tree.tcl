# A binary tree of 128 leaves, a constant-rate multicast from its root: the network of
# `cargo bench -p umbel-sim --bench forward tree`.
#
#   ns tree.tcl [packets] [Calendar|Heap|Map|List]
#
# Every link has 10 Mbit/s, 10 ms and a drop-tail queue of 50 packets; the source sends 1,000 bytes
# every millisecond. Multicast routing is ns-2's centralised one, which knows the tree at once and
# sends no packets of its own. Prints packet-hops and the seconds of processor time that they
# took, without the building of the network; fails if a receiver missed a packet.

source [file join [file dirname [info script]] network.tcl]

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
set leaves [binary_tree $ns $root $depth]
# A tree in which each node but the leaves has two children.
set links [expr {2 * [llength $leaves] - 2}]

set mproto [$ns mrtproto CtrMcast {}]
set group [Node allocaddr]

set cbr [constant_rate $ns $root $group 1000 0.001 $packets]

set sinks {}
foreach leaf $leaves { lappend sinks [receiver $ns $leaf $group] }
# Source-rooted rather than shared trees.
$ns at 0.2 "$mproto switch-treetype $group"

proc begin {} {
    global started
    set started [cpu]
}

proc finish {} {
    global sinks started links packets
    set seconds [expr {[cpu] - $started}]
    set received [received $sinks]
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
