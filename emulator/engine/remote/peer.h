// SPDX-License-Identifier: BSD-2-Clause
//
// Another process, of another node: one connection for all queue pairs of the two, requests and answers of
// both directions on it. It outlives its connection: what its queue pairs have got to does not depend on
// that.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "adapter/memory_table.h"
#include "engine/datagram/delivery.h"
#include "engine/objects/process.h"
#include "wire/frame.h"
#include "wire/net_address.h"
#include "wire/process_id.h"
#include "wire/stream.h"

namespace verbena {

class RemoteRequester;

// Bytes of up to this many go through the buffers, longer ones from memory to memory.
inline constexpr uint32_t kCopied = 16 * 1024;

// A range of this process's memory as a key names it: found again each time it is used.
struct KeyedRange {
  uint32_t key;
  bool remote;
  uint32_t pd;
  uint32_t qpn;
  MemoryUse use;
  uint64_t address;
  uint64_t length;
};

// The answer to a READ that has still to be sent.
struct ReadAnswer {
  wire::AnswerHead head;
  KeyedRange from;
  PeerAdapter* memory;  // whose it is: this process's, or with XRC another one's of the node
  std::shared_ptr<void> keeps;
  uint64_t done = 0;
};

struct RemotePeer : std::enable_shared_from_this<RemotePeer> {
  RemotePeer(Process& own_process, const wire::ProcessId& peer_id);
  ~RemotePeer();

  Process& process;
  const wire::ProcessId id;
  wire::NetAddress address;      // where it was met last
  wire::NetAddress own_address;  // and by which of this node's
  bool begun_here = false;
  int64_t since = 0;              // ns: of this connection
  std::atomic<bool> gone{false};  // the process has ended
  uint32_t users = 0;             // routes and connection requests that name it; under the progress lock
  std::atomic<bool> connected{false};
  std::atomic<bool> broken{false};     // nothing more is to be had of it: the driver gives the connection up
  std::atomic<bool> out_ended{false};  // the socket takes no more; what has come is still read
  std::atomic<uint32_t> epoch{0};      // counts connections
  int fd = -1;                         // changes while the driver's turn and out_mutex are held
  int epoll = -1;                      // Remote's

  // ---- what comes, and who carries it out: the driver's (Remote::drive) ----
  wire::InStream in;
  // by source and target number
  std::unordered_map<uint64_t, std::unique_ptr<RemoteRequester>> remote_requesters;
  std::vector<RemoteRequester*> acknowledgements_due;
  std::vector<RemoteRequester*> waiting_for_receives;  // their requesters are to be told of the next
  // The bytes of a large frame that are still to come: for whom. Neither: they are skipped.
  struct {
    uint64_t left = 0;
    RemoteRequester* remote_requester = nullptr;
    wire::RequestHead request{};
    bool is_answer = false;
    wire::AnswerHead answer{};
  } bulk_in;
  std::unique_ptr<DatagramSender> datagram_source;  // all of its UD queue pairs
  uint32_t datagram_source_qpn = 0;                 // of the last datagram
  // Of each queue pair that takes datagrams: how many since the last that was dropped for want of a receive
  // request.
  std::unordered_map<uint32_t, uint32_t> datagrams_taken;
  // Since when the first frame there is a datagram that waits for a receive request, in ns; 0: it is not.
  int64_t held_since = 0;
  uint32_t held_polls = 0;  // how many turns of the program it has waited
  // The last frame was a long one, and this the size of its head: perhaps the next is another, whose bytes
  // belong elsewhere. 0: it was not.
  size_t takes_large = 0;
  bool answers_due = false;  // some were appended
  uint32_t asked = 0;        // questions that have gone over this connection, and have had no answer
  bool ready = false;        // epoll(7) says that there is something
  bool stalled = false;      // the first frame there is cannot be carried out now
  int64_t ended_at = 0;      // ns: since when it is so though the other end has gone; 0: it is not

  // ---- what goes ----
  std::mutex out_mutex;
  wire::OutStream out;
  std::vector<KeyedRange> bulk;    // where the bulk frame's bytes are
  bool bulk_is_lost = false;       // they are not there any more: the frame is filled up
  uint64_t bulks = 0;              // begun so far
  bool awaits_answer = false;      // requests have gone and nothing has come since: what follows gathers
  bool blocked = false;            // the socket takes no more: epoll(7) tells
  std::atomic<int64_t> try_at{0};  // in ns: who polls leaves the socket alone until then, while blocked
  std::deque<ReadAnswer> reads;
  std::deque<wire::AnswerHead> answers;  // that found no room
  std::atomic<bool> gathered{false};     // there is something to send, perhaps
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> bytes_in{0};
};

// So much of the out-buffer is left to answers.
inline constexpr size_t kAnswersRoom = 64 * 1024;
inline constexpr size_t kMostAnswersKept = 1 << 16;
// Answers to READs that wait, for each queue pair that the peer has a connected one to: no device of ours
// lets a requester have more in flight (max_qp_init_rd_atom).
inline constexpr size_t kMostReadsOfOne = 256;
// What has gathered is sent at the latest when it is so much.
inline constexpr size_t kGathered = 32 * 1024;

// ---- all under out_mutex ----

void close_connection(int fd);

// Room for a frame of a request; nullptr: there is none, or no connection.
std::byte* append_request(RemotePeer& peer, size_t size);
// Never lost while there is a connection; it goes with the next flush.
void append_answer(RemotePeer& peer, const wire::AnswerHead& head);
// The bytes that follow the head appended last are those of `peer.bulk`.
void begin_bulk(RemotePeer& peer, uint64_t size);
// Sends as much as the socket takes. Where it takes no more, it is left alone for a moment (kRoomPause): each
// call in vain, of send(2) or recv(2), would keep the socket's lock from the network. The caller is on no
// hazard guard.
void flush(RemotePeer& peer);
// The next flush() does not wait for that.
inline void try_at_once(RemotePeer& peer) { peer.try_at.store(0, std::memory_order_relaxed); }
// Nothing is wrong with the way: the other machine has acknowledged all that has gone, or has said something
// that nobody here has read yet. Who is waited for has no processor, then, or is stopped. Not for the data
// path.
bool is_way_sound(RemotePeer& peer);

}  // namespace verbena
