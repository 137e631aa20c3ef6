/*
 * Collectives of a group. Each member publishes its part when it starts and counts itself; the last
 * one *opens* the collective: it compares the headers and cuts the work into chunks. Small work it
 * does itself; the chunks of large work are taken by whoever waits, its own first. So neither path
 * needs a certain member to be running, and both add in the same order.
 */
#ifndef YOKE_TRANSPORT_COLLECTIVE_H
#define YOKE_TRANSPORT_COLLECTIVE_H

#include "transport/world.h"

/* Refused before anything is published: a redistribution that leaves elements without source. */
yoke_status yoke_collective_start(yoke_endpoint *endpoint,
                                  const yoke_request *request) YOKE_MUST_USE;

/* As those of message.h; of several ranks that are missing, `preferred` if it is one. */
yoke_gate *yoke_collective_gate(const yoke_endpoint *endpoint, const yoke_request *request);
bool yoke_collective_progress(yoke_endpoint *endpoint, const yoke_request *request, uint32_t *seen);
int yoke_collective_missing(const yoke_endpoint *endpoint, const yoke_request *request,
                            int preferred);
yoke_status yoke_collective_verdict(const yoke_endpoint *endpoint,
                                    const yoke_request *request) YOKE_MUST_USE;

#endif
