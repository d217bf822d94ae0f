/* Formats of the messages that the program reads, and what it shares with the daemon: its maps. */
#pragma once

#include "kernel.h"

enum { ETHERNET = 14, IP = 20, ALERT = 4, UDP = 8 };
enum { IP_UDP = 17, DONT_FRAGMENT = 0x40 };

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
enum { CHANNEL_LEN = 11, HOST_LEN = 7, TURNING_POINT_LEN = 19 };
/* A channel has a source. The only flag of a request that does not need the daemon: reply by unicast. */
enum { WITH_SOURCE = 2, UNICAST = 2 };
enum { MAX_HOPS = 64 };

/* Ends of a request's and a DMCAST's channel, and beginning of a DMCAST's repair. */
enum {
	AFTER_CHANNEL = HEADER + FIELD + CHANNEL_LEN,
	AFTER_POINT = AFTER_CHANNEL + FIELD + TURNING_POINT_LEN,
	AROUND_REPAIR = AFTER_POINT + FIELD,
};
/* Longest request, what may follow its number, and longest repair that are taken. */
enum { MAX_REQUEST = 160, MAX_TAIL = 52, MAX_REPAIR = 2000 };
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
	struct limit datagrams, requests, dmcasts;
	/* The router's address in network order; 0 if it takes nothing now. */
	u32 address;
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
	u32 group, source;
	u16 port, unused;
	u32 interface;
};

/* Where requests go, in network order. */
enum { LEFT = 0, UP = 1, TURN = 2, DOWN = 3, STAMP = 16 };
struct steer {
	u32 address;
	u16 port, how;
};

/* Written by the daemon. */
struct way {
	/* For requests of the replier on this interface, and of anyone else. */
	u32 replier;
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

/* What has been used up: by requests on a link, by DMCASTs of a channel (interface 0), by all on
 * an interface (no channel). */
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
	FIELD_NUMBER(max_entries, 16640);
	FIELD_TYPE(key, struct link);
	FIELD_TYPE(value, struct meter);
} METERS SEC(".maps");

enum counter {
	TURNED,
	SENT_UP,
	SENT_DOWN,
	DMCASTS,
	FORGED,
	INTERFACE_FLOOD,
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

struct scratch {
	u8 message[256];
	/* The end of a request, before and after, at an even distance from its beginning. */
	u8 before[64], after[64];
	u8 repair[2048];
};

struct {
	FIELD_NUMBER(type, MAP_PERCPU_ARRAY);
	FIELD_NUMBER(max_entries, 1);
	FIELD_TYPE(key, u32);
	FIELD_TYPE(value, struct scratch);
} SCRATCH SEC(".maps");
