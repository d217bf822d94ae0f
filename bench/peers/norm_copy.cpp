// Copies one file to many receivers with NORM (libnorm): a peer of bench/peers.sh.
//
//   norm_copy recv GROUP PORT INTERFACE ID FILE                          one in each receiver, first
//   norm_copy send GROUP PORT INTERFACE ID FILE MBIT_S BLOCK PARITY      goes on repairing until it is killed
//
// It is C++ only because normApi.h of libnorm 1.5.9 is not C. A receiver ends when it has the whole
// file.

#include <normApi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr unsigned SOCKET_BUFFER = 4 << 20;
constexpr UINT32 REPAIR_BUFFER = 64 << 20;
constexpr UINT16 SEGMENT = 1400;
// The round trip of the test-bed is about 50 us; NORM's resolution is coarser.
constexpr double ROUND_TRIP = 0.001;

int fail(const char* what) {
    fprintf(stderr, "norm_copy: %s\n", what);
    return 1;
}

int send(NormInstanceHandle instance, NormSessionHandle session, char** arguments) {
    NormSetTxRate(session, atof(arguments[1]) * 1e6);
    NormSetGrttEstimate(session, ROUND_TRIP);
    NormSetGrttMax(session, 0.1);
    NormSetGrttProbingInterval(session, 0.05, 0.5);
    NormSetGroupSize(session, 16);
    if (!NormStartSender(session, 1, REPAIR_BUFFER, SEGMENT, atoi(arguments[2]), atoi(arguments[3])))
        return fail("the sender did not start");
    NormSetTxSocketBuffer(session, SOCKET_BUFFER);
    if (NormFileEnqueue(session, arguments[0]) == NORM_OBJECT_INVALID)
        return fail("the file was not taken");
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type == NORM_TX_OBJECT_PURGED)
            return fail("the file was purged before it was repaired");
    }
    return 0;
}

int receive(NormInstanceHandle instance, NormSessionHandle session, char** arguments) {
    std::string file = arguments[0];
    // libnorm chooses the name of a received file within a directory; then it is renamed.
    std::string directory = file.substr(0, file.rfind('/') + 1);
    if (!NormSetCacheDirectory(instance, directory.c_str()))
        return fail("the directory was not taken");
    if (!NormStartReceiver(session, REPAIR_BUFFER))
        return fail("the receiver did not start");
    NormSetRxSocketBuffer(session, SOCKET_BUFFER);
    NormEvent event;
    while (NormGetNextEvent(instance, &event)) {
        if (event.type == NORM_RX_OBJECT_ABORTED)
            return fail("the file was aborted");
        if (event.type == NORM_RX_OBJECT_COMPLETED)
            return NormFileRename(event.object, file.c_str()) ? 0 : fail("the file was not renamed");
    }
    return fail("no more events");
}

}  // namespace

int main(int count, char** arguments) {
    bool sending = count == 10 && !strcmp(arguments[1], "send");
    if (!sending && !(count == 7 && !strcmp(arguments[1], "recv")))
        return fail("usage: norm_copy recv GROUP PORT INTERFACE ID FILE | "
                    "norm_copy send GROUP PORT INTERFACE ID FILE MBIT_S BLOCK PARITY");
    NormInstanceHandle instance = NormCreateInstance();
    NormSessionHandle session =
        NormCreateSession(instance, arguments[2], atoi(arguments[3]), atoi(arguments[5]));
    if (session == NORM_SESSION_INVALID || !NormSetMulticastInterface(session, arguments[4]))
        return fail("the session was not made");
    // libnorm's clean-up waits for its thread; _Exit skips it, since a copy is complete by then.
    int code = sending ? send(instance, session, arguments + 6) : receive(instance, session, arguments + 6);
    fflush(nullptr);
    _Exit(code);
}
