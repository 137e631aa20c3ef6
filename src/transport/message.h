/*
 * Messages between two ranks. Both ends publish their buffer when they start; either end, whichever
 * comes first to wait (or starts last, if the message is small), copies. So neither needs the other
 * to be running, and two ranks may wait for their sends first.
 */
#ifndef YOKE_TRANSPORT_MESSAGE_H
#define YOKE_TRANSPORT_MESSAGE_H

#include "transport/world.h"

yoke_status yoke_message_start(yoke_endpoint *endpoint, const yoke_request *request) YOKE_MUST_USE;

/* The word on which waiting for it sleeps. */
yoke_gate *yoke_message_gate(const yoke_endpoint *endpoint, const yoke_request *request);

/* Does what can be done now. True when the transfer is complete; else `*seen` is the value of the
 * word that must change before more can be done. */
bool yoke_message_progress(yoke_endpoint *endpoint, const yoke_request *request, uint32_t *seen);

/* The rank that must start first, or -1. */
int yoke_message_missing(const yoke_endpoint *endpoint, const yoke_request *request);

/* How a complete transfer went. */
yoke_status yoke_message_verdict(const yoke_endpoint *endpoint,
                                 const yoke_request *request) YOKE_MUST_USE;

#endif
