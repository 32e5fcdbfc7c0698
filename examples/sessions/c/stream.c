/* A client of a session in C, without any library: each line of standard input is a task, results come out in order.
 *
 *   cc -O2 -o stream stream.c
 *   ./stream SESSION_FILE                    each line is a command for /bin/sh
 *   ./stream SESSION_FILE MODULE:FUNCTION    each line goes to a function of Python, from bytes to bytes
 *
 * The frames are described in spec/frames.md, the tasks in docs/sessions.md. Exit codes: 0 all went well, 1 a task
 * failed, 2 the session cannot be used. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BLOCK_TASKS = 256, BLOCK_BYTES = 1 << 18, WINDOW_BLOCKS = 64, LINE_BYTES = 1 << 19, FRAME_BYTES = 8388608 };
enum { NUMBER_SHIFT = 32 };

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("stream: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(2);
}

/* ── bytes that grow ─────────────────────────────────────────────────────────────────────────────────────────────── */

struct bytes { uint8_t *at; size_t size, room; };

static void add(struct bytes *to, const void *data, size_t size)
{
    if (to->size + size > to->room) {
        to->room = 2 * (to->size + size);
        if (!(to->at = realloc(to->at, to->room))) fail("no memory");
    }
    if (size) memcpy(to->at + to->size, data, size);
    to->size += size;
}

static void add_little(struct bytes *to, uint32_t value)
{
    uint8_t data[4] = {value, value >> 8, value >> 16, value >> 24};
    add(to, data, 4);
}

static uint32_t little(const uint8_t *at)
{
    return at[0] | at[1] << 8 | at[2] << 16 | (uint32_t)at[3] << 24;
}

/* ── MessagePack: as much as the frames need ─────────────────────────────────────────────────────────────────────── */

static void put_head(struct bytes *to, uint8_t mark, uint64_t value, int size)
{
    uint8_t data[9] = {mark};
    for (int i = 0; i < size; i++) data[1 + i] = value >> 8 * (size - 1 - i);
    add(to, data, 1 + size);
}

static void put_text(struct bytes *to, const char *text)
{
    put_head(to, 0xdb, strlen(text), 4);
    add(to, text, strlen(text));
}

static void put_binary(struct bytes *to, const void *data, size_t size)
{
    put_head(to, 0xc6, size, 4);
    add(to, data, size);
}

static void put_number(struct bytes *to, uint64_t value) { put_head(to, 0xcf, value, 8); }

struct value { uint64_t number; const uint8_t *data; size_t size; };

static uint64_t big(const uint8_t **at, const uint8_t *end, int size)
{
    uint64_t value = 0;
    if (end - *at < size) fail("the broker sent half a value");
    while (size--) value = value << 8 | *(*at)++;
    return value;
}

/* Read the value at `*at`, of whatever kind; what is inside of arrays and maps is passed over. */
static struct value take(const uint8_t **at, const uint8_t *end)
{
    struct value found = {0};
    uint64_t inside = 0;
    uint8_t mark = big(at, end, 1);
    if (mark < 0x80) found.number = mark;
    else if (mark < 0x90) inside = 2 * (mark & 15);
    else if (mark < 0xa0) inside = mark & 15;
    else if (mark < 0xc0) found.size = mark & 31;
    else if (mark >= 0xe0) found.number = (int64_t)(int8_t)mark;
    else switch (mark) {
        case 0xc0: break;
        case 0xc2: case 0xc3: found.number = mark & 1; break;
        case 0xc4: case 0xd9: found.size = big(at, end, 1); break;
        case 0xc5: case 0xda: found.size = big(at, end, 2); break;
        case 0xc6: case 0xdb: found.size = big(at, end, 4); break;
        case 0xcc: case 0xd0: found.number = big(at, end, 1); break;
        case 0xcd: case 0xd1: found.number = big(at, end, 2); break;
        case 0xca: case 0xce: case 0xd2: found.number = big(at, end, 4); break;
        case 0xcb: case 0xcf: case 0xd3: found.number = big(at, end, 8); break;
        case 0xdc: inside = big(at, end, 2); break;
        case 0xdd: inside = big(at, end, 4); break;
        case 0xde: inside = 2 * big(at, end, 2); break;
        case 0xdf: inside = 2 * big(at, end, 4); break;
        default: fail("the broker sent a value of kind %02x", mark);
    }
    if ((size_t)(end - *at) < found.size) fail("the broker sent half a value");
    found.data = *at;
    *at += found.size;
    while (inside--) take(at, end);
    return found;
}

static struct value field(const uint8_t *at, const uint8_t *end, const char *name)
{
    uint8_t mark = big(&at, end, 1);
    uint64_t pairs = mark == 0xde ? big(&at, end, 2) : mark == 0xdf ? big(&at, end, 4) : mark & 15;
    while (pairs--) {
        struct value key = take(&at, end), value = take(&at, end);
        if (key.size == strlen(name) && !memcmp(key.data, name, key.size)) return value;
    }
    return (struct value){0};
}

static int is(struct value text, const char *word) { return text.size == strlen(word) && !memcmp(text.data, word, text.size); }

/* ── the connection ──────────────────────────────────────────────────────────────────────────────────────────────── */

static int link_fd;
static struct bytes arrived;

static void receive(void)
{
    uint8_t data[1 << 16];
    ssize_t size = recv(link_fd, data, sizeof data, MSG_DONTWAIT);
    if (size > 0) add(&arrived, data, size);
    else if (!size || (errno != EAGAIN && errno != EINTR)) fail("the session is lost");
}

/* Send, and meanwhile receive: so neither end waits for the other one to read. */
static void send_all(const uint8_t *data, size_t size)
{
    while (size) {
        struct pollfd wait = {link_fd, POLLIN | POLLOUT, 0};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) fail("poll: %s", strerror(errno));
        if (wait.revents & POLLIN) receive();
        if (!(wait.revents & POLLOUT)) continue;
        ssize_t sent = send(link_fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) fail("the session is lost");
        if (sent > 0) data += sent, size -= sent;
    }
}

static struct bytes frame;

static void begin_frame(const char *type, int fields)
{
    frame.size = 0;
    add_little(&frame, 0);
    uint8_t mark = 0x80 + 1 + fields;
    add(&frame, &mark, 1);
    put_text(&frame, "t");
    put_text(&frame, type);
}

static void send_frame(void)
{
    uint32_t size = frame.size - 4;
    for (int i = 0; i < 4; i++) frame.at[i] = size >> 8 * i;
    send_all(frame.at, frame.size);
}

/* The next frame; its bytes are valid until the next call. */
static void next_frame(const uint8_t **begin, const uint8_t **end)
{
    static size_t used;
    if (used) {
        arrived.size -= used;
        memmove(arrived.at, arrived.at + used, arrived.size);
        used = 0;
    }
    for (;;) {
        if (arrived.size >= 4) {
            uint32_t size = little(arrived.at);
            if (size > FRAME_BYTES) fail("the broker sent a frame of %u bytes", size);
            if (arrived.size - 4 >= size) {
                *begin = arrived.at + 4, *end = *begin + size, used = 4 + size;
                return;
            }
        }
        struct pollfd wait = {link_fd, POLLIN, 0};
        if (poll(&wait, 1, -1) < 0 && errno != EINTR) fail("poll: %s", strerror(errno));
        if (wait.revents) receive();
    }
}

/* ── the session's file: JSON that HAL wrote ─────────────────────────────────────────────────────────────────────── */

static char *word_after(const char *json, const char *before)
{
    const char *at = strstr(json, before);
    if (!at) fail("no %s in the session's file", before);
    at += strlen(before);
    const char *end = strchr(at, '"');
    if (!end || memchr(at, '\\', end - at) || memchr(at, '$', end - at)) fail("no plain text after %s", before);
    return strndup(at, end - at);
}

static uint64_t open_session(const char *path)
{
    static char json[1 << 16];
    FILE *file = fopen(path, "r");
    if (!file) fail("%s: %s", path, strerror(errno));
    json[fread(json, 1, sizeof json - 1, file)] = 0;
    fclose(file);
    char *id = word_after(json, "\"id\":\""), *token = word_after(json, "\"token\":\"");
    const char *dialled = strstr(json, "\"dial\":[\"") ? "\"dial\":[\"unix:" : "\"listen\":[\"unix:";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (snprintf(address.sun_path, sizeof address.sun_path, "%s", word_after(json, dialled)) >= (int)sizeof address.sun_path)
        fail("the path of the socket is too long");
    if ((link_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0 ||
        connect(link_fd, (struct sockaddr *)&address, sizeof address))
        fail("%s: %s", address.sun_path, strerror(errno));
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(link_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) || (peer.uid && peer.uid != getuid()))
        fail("the broker is of another user");

    begin_frame("open-session", 4);
    put_text(&frame, "versions");
    put_head(&frame, 0x92, 0, 0);
    put_number(&frame, 1), put_number(&frame, 1);
    put_text(&frame, "role"), put_text(&frame, "client");
    put_text(&frame, "session"), put_text(&frame, id);
    put_text(&frame, "token"), put_text(&frame, token);
    send_frame();
    const uint8_t *begin, *end;
    next_frame(&begin, &end);
    if (!is(field(begin, end, "t"), "session-opened")) {
        struct value reason = field(begin, end, "reason");
        fail("the broker refuses: %.*s", (int)reason.size, (const char *)reason.data);
    }
    return field(begin, end, "number").number;
}

/* ── tasks: pickles of byte strings ──────────────────────────────────────────────────────────────────────────────── */

static void put_bytes(struct bytes *to, const void *data, size_t size)
{
    add(to, "B", 1);
    add_little(to, size);
    add(to, data, size);
}

/* The byte string that a pickle is. */
static struct value bytes_in(const uint8_t *at, const uint8_t *end)
{
    struct value found = {0};
    for (at += 2; at < end && *at != '.';) {
        uint8_t mark = *at++;
        size_t left = end - at, head = mark == 'C' ? 1 : mark == 'B' ? 4 : mark == 0x95 ? 8 : 0;
        if (left < head || (!head && mark != 0x94)) fail("a result is not a byte string");
        if (mark == 'C' || mark == 'B') {
            found.size = mark == 'C' ? at[0] : little(at);
            found.data = at + head;
            if (left - head < found.size) fail("half a result");
        }
        at += head + (mark == 0x95 ? 0 : found.data == at + head ? found.size : 0);
    }
    return found;
}

static int failures;

static void show(struct value status, uint64_t index, const uint8_t *at, const uint8_t *end, int commands)
{
    if (status.data[index]) {
        fprintf(stderr, "a task ended with status %d\n", status.data[index]);
        failures++;
        return;
    }
    struct value result = bytes_in(at, end);
    if (commands && result.size >= 8) {
        int32_t code = little(result.data);
        uint32_t output = little(result.data + 4);
        fwrite(result.data + 8, 1, output, stdout);
        fwrite(result.data + 8 + output, 1, result.size - 8 - output, stderr);
        if (code) fprintf(stderr, "exit code %d\n", code), failures++;
    } else if (!commands && result.size >= 1 && !result.data[0]) {
        fwrite(result.data + 1, 1, result.size - 1, stdout);
        fputc('\n', stdout);
    } else {
        if (result.size) fwrite(result.data + 1, 1, result.size - 1, stderr);
        failures++;
    }
}

/* Results of a block can come in several frames, and blocks in any order; they are kept until it is their turn. */
struct block { uint32_t tasks, answered; struct bytes *results; uint8_t *statuses; };
static struct block blocks[WINDOW_BLOCKS];
static uint64_t block_of_first[WINDOW_BLOCKS], oldest, newest;

static void take_results(int commands)
{
    const uint8_t *begin, *end;
    next_frame(&begin, &end);
    struct value type = field(begin, end, "t");
    if (is(type, "goodbye")) fail("the session is over");
    if (is(type, "task-results")) {
        uint64_t first = field(begin, end, "block").number, index = field(begin, end, "index").number, number = oldest;
        while (number < newest && block_of_first[number % WINDOW_BLOCKS] != first) number++;
        struct block *block = &blocks[number % WINDOW_BLOCKS];
        struct value statuses = field(begin, end, "statuses"), sizes = field(begin, end, "sizes");
        struct value payload = field(begin, end, "payload");
        if (number == newest || index + statuses.size > block->tasks || sizes.size != 4 * statuses.size) fail("unknown tasks");
        for (size_t i = 0, at = 0; i < statuses.size; i++) {
            uint32_t size = little(sizes.data + 4 * i);
            if (payload.size - at < size) fail("half a result");
            add(&block->results[index + i], payload.data + at, size);
            block->statuses[index + i] = statuses.data[i];
            block->answered++;
            at += size;
        }
    }
    for (; oldest < newest && blocks[oldest % WINDOW_BLOCKS].answered == blocks[oldest % WINDOW_BLOCKS].tasks; oldest++) {
        struct block *block = &blocks[oldest % WINDOW_BLOCKS];
        for (uint32_t i = 0; i < block->tasks; i++) {
            struct bytes *one = &block->results[i];
            show((struct value){.data = block->statuses}, i, one->at, one->at + one->size, commands);
            free(one->at);
        }
        free(block->results), free(block->statuses);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 3) fail("usage: stream SESSION_FILE [MODULE:FUNCTION]");
    int commands = argc == 2;
    uint64_t function = (open_session(argv[1]) << NUMBER_SHIFT) + 1, task = 0;
    const char *pickle = commands ? "\x80\x03" "chal.runtime.byte_tasks\ncommand\n." : "\x80\x03" "chal.runtime.byte_tasks\ncall\n.";
    begin_frame("store-object", 2);
    put_text(&frame, "ref"), put_number(&frame, function);
    put_text(&frame, "data"), put_binary(&frame, pickle, strlen(pickle));
    send_frame();

    char *line = NULL;
    size_t room = 0;
    ssize_t length = 0;
    struct bytes sizes = {0}, payload = {0};
    while (length >= 0) {
        sizes.size = payload.size = 0;
        while (sizes.size < 4 * BLOCK_TASKS && payload.size < BLOCK_BYTES && (length = getline(&line, &room, stdin)) >= 0) {
            if (length && line[length - 1] == '\n') length--;
            if (length > LINE_BYTES) fail("a line of %zd bytes", length);
            size_t before = payload.size;
            add(&payload, "\x80\x03", 2);
            if (commands) put_bytes(&payload, "/bin/sh", 7), put_bytes(&payload, "-c", 2);
            else put_bytes(&payload, argv[2], strlen(argv[2]));
            put_bytes(&payload, line, length);
            add(&payload, commands ? "\x87." : "\x86.", 2); /* a tuple of three, of two */
            add_little(&sizes, payload.size - before);
        }
        if (!sizes.size) break;
        while (newest - oldest == WINDOW_BLOCKS) take_results(commands);
        uint32_t tasks = sizes.size / 4;
        block_of_first[newest % WINDOW_BLOCKS] = task;
        blocks[newest % WINDOW_BLOCKS] =
            (struct block){tasks, 0, calloc(tasks, sizeof(struct bytes)), calloc(tasks, 1)};
        newest++;
        begin_frame("submit-tasks", 4);
        put_text(&frame, "first"), put_number(&frame, task);
        put_text(&frame, "function"), put_number(&frame, function);
        put_text(&frame, "sizes"), put_binary(&frame, sizes.at, sizes.size);
        put_text(&frame, "payload"), put_binary(&frame, payload.at, payload.size);
        send_frame();
        task += tasks;
    }
    while (oldest < newest) take_results(commands);
    fflush(stdout);
    return failures ? 1 : 0;
}
