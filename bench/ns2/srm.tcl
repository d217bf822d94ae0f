# SRM on a binary tree, by ns-2's own agent: the network of
# `cargo run -p umbel-sim --example srm_tree`.
#
#   ns srm.tcl DEPTH source|receiver SEED LOG
#
# A receiver at each leaf and the source beyond the root; every link has 10 Mbit/s and 10 ms. The
# tenth unit is lost once, and the next one, 2 s later, shows it. Writes the agents' statistics to
# LOG: a line for each member that asked or was about to, and for each that repaired or was about to.

source [file join [file dirname [info script]] network.tcl]

foreach {depth place seed log} $argv break
set ns [new Simulator -multicast on]
# The first number that ns-2 draws is in proportion to the seed: with 1, 2, 3 … it is nearly 0.
ns-random [expr {$seed * 1000003}]
$ns rtproto Static
set root [$ns node]
set leaves [binary_tree $ns $root $depth]
set source [$ns node]
$ns duplex-link $source $root 10Mb 10ms DropTail

set mproto [$ns mrtproto CtrMcast {}]
set group [Node allocaddr]
set statistics [open $log w]
set number 0
foreach node [linsert $leaves 0 $source] {
    set agent [new Agent/SRM]
    $agent set dst_addr_ $group
    $agent set dst_port_ 0
    $agent set fid_ [incr number]
    $agent log $statistics
    $ns at 1.0 "$agent start"
    $ns attach-agent $node $agent
    if {$number == 1} { set sender $agent }
}
# Source-rooted rather than shared trees.
$ns at 1.1 "$mproto switch-treetype $group"

set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ 800
$cbr set interval_ 2.0
$cbr attach-agent $sender
$sender traffic-source $cbr
$sender set packetSize_ 800

# Of every 20 data packets, the one numbered 10.
set loss [new SRMErrorModel]
$loss drop-packet 2 20 10
$loss drop-target [new Agent/Null]
set leaf [lindex $leaves 0]
if {$place == "source"} {
    $ns at 19.0 "$ns lossmodel $loss $source $root"
} else {
    $ns at 19.0 "$ns lossmodel $loss [lindex [$leaf neighbors] 0] $leaf"
}
$ns at 20.0 "$sender start-source"
$ns at 58.0 "exit 0"
$ns run
