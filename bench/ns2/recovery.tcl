# LMS or PGM by ns-2's own agents on a network of recovery-network.awk.
#
#   ns recovery.tcl lms|pgm NETWORK SEED TRACE
#
# Routers have the protocol's agent, hosts only a receiver. A packet is sent every 400 ms. At the end
# the sender and the receivers print their statistics; TRACE has all packets.

foreach {protocol network seed trace} $argv break
source $network
set routers [expr {(1 << $depth) - 1}]
set name [string toupper $protocol]
if {$protocol == "lms"} {
    add-packet-header Lms
    # Receivers report the greatest round trip to a procedure of this name.
    proc set_max_rtt {seconds} {}
}

set ns [new Simulator -multicast on]
# The first number that ns-2 draws is in proportion to the seed: with 1, 2, 3 … it is nearly 0.
ns-random [expr {$seed * 1000003}]
$ns rtproto Static
set file [open $trace w]
$ns trace-all $file
Node enable-module $name
for {set n 1} {$n <= $routers} {incr n} { set node($n) [$ns node] }
Node disable-module $name
foreach distance $far {
    set node($n) [$ns node]
    incr n
}
foreach link $tree {
    foreach {above below delay sequence nth} $link break
    $ns duplex-link $node($above) $node($below) 100Mb $delay DropTail
}
set mproto [$ns mrtproto DM {}]
set group [Node allocaddr]

set sender [new Agent/$name/Sender]
$sender set dst_addr_ $group
$sender set dst_port_ 0
$ns attach-agent $node(1) $sender
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ 1000
$cbr set interval_ 0.4
$cbr set maxpkts_ $packets
$cbr attach-agent $sender

set h 0
foreach distance $far {
    incr h
    set host $node([expr {$routers + $h}])
    set receiver($h) [new Agent/$name/Receiver]
    $ns attach-agent $host $receiver($h)
    $ns at 0.1 "$host join-group $receiver($h) $group"
    if {$protocol == "lms"} {
        # A replier costs its distance. All cost 0 before: a router takes the one that costs less
        # only once the dearer one has told its cost, so all tell it once for each level.
        for {set level 0} {$level < $depth} {incr level} {
            $ns at [expr {2.0 + $level}] "$receiver($h) set-replier-cost $distance"
        }
    }
}
foreach link $tree {
    foreach {above below delay sequence nth} $link break
    if {$protocol == "lms"} {
        # 2 is the type of data, and the last number a sequence number.
        set loss [new LMSErrorModel]
        $loss drop-packet 2 1000000 $sequence
    } else {
        set loss [new PGMErrorModel]
        $loss drop-packet ODATA 1000000 $nth
    }
    $loss drop-target [new Agent/Null]
    $ns lossmodel $loss $node($above) $node($below)
}
$ns at 1.0 [expr {$protocol == "lms" ? "$sender lms-setup" : "$sender start-SPM"}]
$ns at 10.0 "$cbr start"

proc finish {} {
    global ns file sender receiver
    $ns flush-trace
    close $file
    $sender print-stats
    for {set h 1} {[info exists receiver($h)]} {incr h} { $receiver($h) print-stats }
    exit 0
}
$ns at [expr {20.0 + 0.4 * $packets}] "finish"
$ns run
