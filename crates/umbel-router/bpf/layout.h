/* Formats of the messages that the program reads, and what it shares with the daemon: its maps. */
#pragma once

#include "kernel.h"

/* Addresses in network order; one of IPv4 is in the first word, and the others are zero. */
struct address {
	u32 word[4];
};

/* The header of IP, and what Router Alert adds to it: an option, or a header of options. */
#if V6
enum { IP = 40, ALERT = 8, ETHERTYPE = 0x86DD, FAMILY = AF_INET6, WORDS = 4 };
#else
enum { IP = 20, ALERT = 4, ETHERTYPE = 0x0800, FAMILY = AF_INET, WORDS = 1 };
#endif
enum { ETHERNET = 14, UDP = 8 };
/* Place of the source address in a header of IP; the destination follows. */
enum { SOURCE_AT = V6 ? 8 : 12 };
enum { IP_UDP = 17, HOP_BY_HOP = 0, DONT_FRAGMENT = 0x40 };
/* Type of the option; its value in IPv6, as in umbel-wire/src/datagram.rs. */
enum { ALERT_OPTION = V6 ? 5 : 0x94, ALERT_VALUE = 65503 };

/* Messages, and their fields: type in 2 bytes, length in 4, value. See umbel-wire/src/lms. */
enum { HEADER = 8, FIELD = 6 };
enum { REPAIR = 0x63, REQUEST = 0x64, DMCAST = 0x65 };
enum {
	TSI = 1,
	CHANNEL = 2,
	SEQUENCE = 3,
	FOLLOWING = 4,
	NUMBER = 7,
	FLAGS = 8,
	REQUESTOR = 9,
	TURNING_POINT = 10,
	PAYLOAD = 17,
	HOPS = 18,
};
enum { ADDRESS = 4 * WORDS, CHANNEL_LEN = 3 + 2 * ADDRESS };
enum { HOST_LEN = 3 + ADDRESS, TURNING_POINT_LEN = HOST_LEN + 12 };
/* Flags of a host, and of a channel with a source. The only flag of a request that does not need the
 * daemon: reply by unicast. */
enum { HOST = V6, WITH_SOURCE = 2 | V6, UNICAST = 2 };
enum { MAX_HOPS = 64 };

/* Ends of a request's and a DMCAST's channel, and beginning of a DMCAST's repair. */
enum {
	AFTER_CHANNEL = HEADER + FIELD + CHANNEL_LEN,
	AFTER_POINT = AFTER_CHANNEL + FIELD + TURNING_POINT_LEN,
	AROUND_REPAIR = AFTER_POINT + FIELD,
};
/* Longest request, what may follow its number, and longest repair that are taken. */
#if V6
enum { MAX_REQUEST = 200, MAX_TAIL = 76, TAIL_ROOM = 80 };
#else
enum { MAX_REQUEST = 160, MAX_TAIL = 52, TAIL_ROOM = 64 };
#endif
enum { MAX_REPAIR = 2000 };
/* Longest numbers in bytes: of 32 bits, and of 63. */
enum { VARINT_32 = 5, VARINT_63 = 9 };

/* A token bucket: what one event costs, and what it holds, in ns. */
struct limit {
	u64 cost, depth;
};

/* Written by the daemon. */
struct settings {
	/* Of tags. */
	u64 key[2];
	/* What the daemon's clock is behind the kernel's, lifetime of tags, and of credit, in ns. */
	u64 clock, lifetime, credit_lifetime;
	/* Of a host on an interface; of a channel's requests on a link, and its DMCASTs. */
	struct limit datagrams, requests, dmcasts;
	/* The router's address; none if it takes nothing now. */
	struct address address;
	/* DMCASTs for each requested unit, and the most that a branch may have. */
	u32 per_unit, most;
	/* Of routers, in network order. */
	u16 port;
	u8 hops, repair_hops;
};

struct {
	FIELD_NUMBER(type, MAP_ARRAY);
	FIELD_NUMBER(max_entries, 1);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, struct settings);
} SETTINGS SEC(".maps");

/* A channel on an interface, the channel in network order. */
struct link {
	struct address group, source;
	u16 port, unused;
	u32 interface;
};

/* Where requests go, in network order. */
enum { LEFT = 0, UP = 1, TURN = 2, DOWN = 3, STAMP = 16 };
struct steer {
	struct address address;
	u16 port, how;
};

/* Written by the daemon. */
struct way {
	/* For requests of the replier on this interface, and of anyone else. */
	struct address replier;
	struct steer of_replier, of_others;
	/* Whether the channel goes out here, and in packets of which length. */
	u16 is_output, mtu;
};

struct {
	FIELD_NUMBER(type, MAP_HASH);
	FIELD_NUMBER(max_entries, 8192);
	FIELD_TYPE(key, struct link);
	FIELD_TYPE(value, struct way);
} LINKS SEC(".maps");

/* What has been used up: by requests on a link, by DMCASTs of a channel (interface 0). */
struct meter {
	struct bpf_spin_lock lock;
	/* DMCASTs permitted on a link, and until when. */
	u32 credit;
	u64 expires;
	/* Time at which the bucket is full. */
	u64 full_at;
};

struct {
	FIELD_NUMBER(type, MAP_HASH);
	FIELD_NUMBER(max_entries, 16384);
	FIELD_TYPE(key, struct link);
	FIELD_TYPE(value, struct meter);
} METERS SEC(".maps");

/* A host on an interface. */
struct sender {
	struct address address;
	u32 interface;
};

/* What hosts have used up that the daemon knows. The first message of others is for it. */
struct {
	FIELD_NUMBER(type, MAP_HASH);
	FIELD_NUMBER(max_entries, 8192);
	FIELD_TYPE(key, struct sender);
	FIELD_TYPE(value, struct meter);
} SENDERS SEC(".maps");

enum counter {
	TURNED,
	SENT_UP,
	SENT_DOWN,
	DMCASTS,
	FORGED,
	HOST_FLOOD,
	REQUEST_FLOOD,
	DMCAST_FLOOD,
	UNASKED,
	UNSENT,
	LEFT_REQUESTS,
	LEFT_DMCASTS,
	COUNTERS,
};

struct {
	FIELD_NUMBER(type, MAP_PERCPU_ARRAY);
	FIELD_NUMBER(max_entries, COUNTERS);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, u64);
} COUNTS SEC(".maps");

/* What is changed in the headers of a packet. */
struct heads {
	struct address source, destination;
	u16 source_port, destination_port;
	/* Of UDP. */
	u16 len;
	u8 hops, alert;
};

/* What the checksum of UDP is taken of beside the datagram, as far as it changes. */
struct pseudo {
	u32 source[WORDS], destination[WORDS], len;
};

/* The header of IP, with Router Alert. */
#if V6
struct ip {
	u8 version, class, flow[2];
	u16 len;
	u8 next, hops;
	u32 source[WORDS], destination[WORDS];
	u8 alert[ALERT];
};
#else
struct ip {
	u8 version, service;
	u16 len, identification;
	u8 fragment[2], hops, protocol;
	u16 checksum;
	u32 source[WORDS], destination[WORDS];
	u8 alert[ALERT];
};
#endif

/* Room that the stack does not have. */
struct scratch {
	u8 message[256];
	/* The end of a request, before and after, at an even distance from its beginning. */
	u8 before[TAIL_ROOM], after[TAIL_ROOM];
	u8 repair[2048];
	struct heads heads;
	struct pseudo pseudo[2];
	struct ip ip;
	struct fib_lookup route;
};

struct {
	FIELD_NUMBER(type, MAP_PERCPU_ARRAY);
	FIELD_NUMBER(max_entries, 1);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, struct scratch);
} SCRATCH SEC(".maps");
