-- Asks what the file named after `--` holds, each time with a word of its own in place of the slot; prints one line of
-- JSON at the end. Arguments: the file, the slot, a salt that no other run has.

local started = 0

function setup(thread)
   started = started + 1
   thread:set("number", started)
end

function init(args)
   local file = assert(io.open(args[1], "rb"))
   local whole = file:read("*a")
   file:close()
   local from, to = whole:find(args[2], 1, true)
   head, tail = whole:sub(1, from - 1), whole:sub(to + 1)
   word = string.format("%06x%02x", tonumber(args[3]), number) .. "%08x"
   asked = 0
end

function request()
   asked = asked + 1
   return head .. string.format(word, asked) .. tail
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '\n{"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "refused": %d, "failed": %d}\n',
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
      errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
