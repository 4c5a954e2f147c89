// A file is: the magic, two version bytes, the header's length (2 bytes, from version 2.0 on 4,
// little-endian), the header, the elements. The header is a Python dict literal:
//   {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }
// The first half of this file parses it, the second half reads and writes whole files.
#include "npy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "half.h"
#include "output_file.h"
#include "tensor.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they lie");

enum {
    PREAMBLE_MAX = 12,    // magic, version and length
    HEADER_MAX = 65536,   // bytes of the dict; NumPy writes about 100
    HEADER_WRITTEN = 128, // bytes of all that stands before the elements
    CHUNK = 8192,         // elements converted at a time
    TEXT_MAX = 40,        // bytes kept of a string: more than any valid one has
};

// The magic, version 1.0, and 118 bytes of dict: how every written file begins.
static const unsigned char preamble_written[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0};
static const char allowed_types[] = "'<f2', '<f4' and '<f8' are allowed";

static attention_status __attribute__((format(printf, 2, 3)))
refuse(const char *name, const char *format, ...)
{
    char sentence[320];
    va_list list;
    va_start(list, format);
    vsnprintf(sentence, sizeof sentence, format, list);
    va_end(list);
    return status_fail(ATTENTION_BAD_FILE, "%s: %s", name, sentence);
}

// ---- The header ----

typedef struct {
    const char *name; // of the file, for messages
    const unsigned char *start, *at, *end;
} cursor;

static attention_status malformed(const cursor *c, const char *expected)
{
    char found[16] = "its end";
    if (c->at < c->end)
        snprintf(found, sizeof found, *c->at > ' ' && *c->at < 127 ? "%c" : "byte 0x%02x", *c->at);
    return refuse(c->name, "malformed header: %s where %s should be, at byte %td of the header",
                  found, expected, c->at - c->start);
}

static bool at_digit(const cursor *c)
{
    return c->at < c->end && *c->at >= '0' && *c->at <= '9';
}

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || (*c->at >= '\t' && *c->at <= '\r'))) c->at++;
}

// Consumes `token`, and the white space before it, if it is next.
static bool take(cursor *c, const char *token)
{
    skip_space(c);
    const size_t length = strlen(token);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, token, length) != 0) return false;
    c->at += length;
    return true;
}

// A string in single or double quotes, without escapes; cut to TEXT_MAX and to ASCII, so that it
// can be printed. No valid string changes.
static attention_status parse_string(cursor *c, const char *expected, char text[TEXT_MAX])
{
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"')) return malformed(c, expected);
    const unsigned char quote = *c->at++;
    size_t length = 0;
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (*c->at == '\\' || *c->at == '\n') return malformed(c, "a closing quote");
        const bool printable = *c->at >= ' ' && *c->at < 127;
        if (length < TEXT_MAX - 1)
            memcpy(&text[length++], printable ? (const char *)c->at : "?", 1);
    }
    text[length] = '\0';
    if (c->at == c->end) return malformed(c, "a closing quote");
    c->at++;
    return ATTENTION_OK;
}

static attention_status parse_type(cursor *c, npy_header *header)
{
    char text[TEXT_MAX] = "";
    if (take(c, "[")) return refuse(c->name, "a structured element type; only %s", allowed_types);
    const attention_status status = parse_string(c, "the element type in quotes", text);
    if (status != ATTENTION_OK) return status;
    if (text[0] == '>')
        return refuse(c->name, "big-endian elements '%s'; only %s", text, allowed_types);
    const bool little = text[0] == '<' || text[0] == '='; // '=' is the byte order of the machine
    const char *const type = text + 1;
    if (!little || (strcmp(type, "f2") != 0 && strcmp(type, "f4") != 0 && strcmp(type, "f8") != 0))
        return refuse(c->name, "element type '%s'; only %s", text, allowed_types);
    memcpy(header->type, type, 3);
    return ATTENTION_OK;
}

static attention_status parse_order(cursor *c)
{
    if (take(c, "False")) return ATTENTION_OK;
    if (!take(c, "True")) return malformed(c, "True or False");
    return refuse(c->name, "Fortran order; only C order ('fortran_order': False) is allowed");
}

static attention_status parse_extent(cursor *c, int64_t *extent)
{
    if (take(c, "-")) return refuse(c->name, "a negative extent; 1 and above is allowed");
    if (!at_digit(c)) return malformed(c, "an extent");
    const bool zero = *c->at == '0';
    *extent = 0;
    for (; at_digit(c); c->at++)
        if (__builtin_mul_overflow(*extent, 10, extent) ||
            __builtin_add_overflow(*extent, *c->at - '0', extent))
            return refuse(c->name, "an extent that does not fit in 63 bits");
    if (*extent == 0) return refuse(c->name, "an extent of 0; 1 and above is allowed");
    if (zero) return refuse(c->name, "malformed header: an extent with a leading zero");
    return ATTENTION_OK;
}

static attention_status parse_shape(cursor *c, npy_header *header)
{
    int rank = 0; // at most HEADER_MAX / 2
    bool comma = true;
    if (!take(c, "(")) return malformed(c, "the shape in parentheses");
    while (!take(c, ")")) {
        int64_t extent = 0;
        if (!comma) return malformed(c, "a comma or a closing parenthesis");
        const attention_status status = parse_extent(c, &extent);
        if (status != ATTENTION_OK) return status;
        if (rank < NPY_RANK_MAX) header->shape[rank] = extent;
        rank++;
        comma = take(c, ",");
    }
    if (rank == 1 && !comma) // to Python, (3) is a number
        return refuse(c->name, "malformed header: a shape of one extent without its comma");
    if (rank < 1 || rank > NPY_RANK_MAX)
        return refuse(c->name, "rank %d; 1 to %d is allowed", rank, NPY_RANK_MAX);
    header->rank = rank;
    return ATTENTION_OK;
}

static attention_status parse_entry(cursor *c, npy_header *header, bool seen[3])
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[TEXT_MAX] = "";
    const attention_status status = parse_string(c, "a key in quotes", key);
    if (status != ATTENTION_OK) return status;
    int which = 0;
    while (which < 3 && strcmp(key, keys[which]) != 0) which++;
    if (which == 3)
        return refuse(c->name,
                      "malformed header: unknown key '%s'; 'descr', 'fortran_order' and 'shape' "
                      "are allowed",
                      key);
    if (seen[which]) return refuse(c->name, "malformed header: key '%s' stands there twice", key);
    seen[which] = true;
    if (!take(c, ":")) return malformed(c, "a colon");
    if (which == 0) return parse_type(c, header);
    return which == 1 ? parse_order(c) : parse_shape(c, header);
}

static attention_status parse_dict(cursor *c, npy_header *header)
{
    bool seen[3] = {false};
    bool comma = true;
    if (!take(c, "{")) return malformed(c, "an opening brace");
    while (!take(c, "}")) {
        if (!comma) return malformed(c, "a comma or a closing brace");
        const attention_status status = parse_entry(c, header, seen);
        if (status != ATTENTION_OK) return status;
        comma = take(c, ",");
    }
    if (!seen[0] || !seen[1] || !seen[2])
        return refuse(c->name, "malformed header: key '%s' is missing",
                      !seen[0]   ? "descr"
                      : !seen[1] ? "fortran_order"
                                 : "shape");
    skip_space(c);
    return c->at == c->end ? ATTENTION_OK : malformed(c, "nothing");
}

static int element_size(const npy_header *header)
{
    return header->type[1] - '0';
}

// Counts the elements; the bytes of the whole file, too, must fit in 63 bits.
static attention_status count_elements(const char *name, npy_header *header)
{
    int64_t bytes;
    bool overflow = false;
    header->count = 1;
    for (int i = 0; i < header->rank; i++)
        overflow |= __builtin_mul_overflow(header->count, header->shape[i], &header->count);
    overflow |= __builtin_mul_overflow(header->count, element_size(header), &bytes);
    overflow |= __builtin_add_overflow(bytes, (int64_t)header->data_offset, &bytes);
    if (overflow) return refuse(name, "a shape whose bytes do not fit in 63 bits");
    return ATTENTION_OK;
}

attention_status npy_parse_header(const char *name, const unsigned char *bytes, size_t size,
                                  npy_header *header)
{
    if (size < 6 || memcmp(bytes, preamble_written, 6) != 0)
        return refuse(name, "not an .npy file: it does not begin with the bytes \\x93NUMPY");
    if (size >= 8 && (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0))
        return refuse(name, ".npy version %d.%d; 1.0, 2.0 and 3.0 are allowed", bytes[6], bytes[7]);
    const size_t preamble = size >= 8 && bytes[6] == 1 ? 10 : PREAMBLE_MAX;
    if (size < preamble) return refuse(name, "the file ends at byte %zu, before its header", size);

    uint32_t length = bytes[8] | (uint32_t)bytes[9] << 8;
    if (preamble == PREAMBLE_MAX) length |= (uint32_t)bytes[10] << 16 | (uint32_t)bytes[11] << 24;
    if (length > HEADER_MAX)
        return refuse(name, "a header of %" PRIu32 " bytes; at most %d are allowed", length,
                      HEADER_MAX);
    if (length > size - preamble)
        return refuse(name, "a header of %" PRIu32 " bytes, but the file has only %zu left for it",
                      length, size - preamble);

    const unsigned char *const start = bytes + preamble;
    cursor c = {name, start, start, start + length};
    npy_header parsed = {.shape = {1, 1, 1, 1}, .data_offset = preamble + length};
    attention_status status = parse_dict(&c, &parsed);
    if (status == ATTENTION_OK) status = count_elements(name, &parsed);
    if (status == ATTENTION_OK) *header = parsed;
    return status;
}

// ---- Whole files ----

static attention_status open_regular(const char *path, FILE **file, int64_t *size)
{
    // Without O_NONBLOCK, a pipe would be waited for.
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) return refuse(path, "cannot be read: %s", strerror(errno));
    struct stat info;
    const bool known = fstat(descriptor, &info) == 0;
    attention_status status = ATTENTION_OK;
    if (known && !S_ISREG(info.st_mode))
        status = refuse(path, "is %s; only regular files can be read",
                        S_ISDIR(info.st_mode) ? "a directory" : "a pipe or a device");
    else if (!known || !(*file = fdopen(descriptor, "rb")))
        status = refuse(path, "cannot be read: %s", strerror(errno));
    else
        *size = info.st_size;
    if (status != ATTENTION_OK) close(descriptor);
    return status;
}

static attention_status read_header(const char *path, FILE *file, npy_header *header)
{
    const size_t most = PREAMBLE_MAX + HEADER_MAX; // what lies behind cannot be header
    unsigned char *bytes = malloc(most);
    if (!bytes) return status_fail(ATTENTION_NO_MEMORY, "%s: no memory for its header", path);
    const size_t size = fread(bytes, 1, most, file);
    const attention_status status = ferror(file)
                                        ? refuse(path, "cannot be read: %s", strerror(errno))
                                        : npy_parse_header(path, bytes, size, header);
    free(bytes);
    return status;
}

// Elements of 2, 4 or 8 bytes as floats.
static void widen(float *data, const unsigned char *bytes, size_t count, int size)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        double wide;
        if (size == 2) {
            memcpy(&half, bytes + 2 * i, 2);
            data[i] = fp16_to_float(half);
        } else if (size == 4) {
            memcpy(&data[i], bytes + 4 * i, 4);
        } else {
            memcpy(&wide, bytes + 8 * i, 8);
            data[i] = (float)wide;
        }
    }
}

static attention_status read_elements(const char *path, FILE *file, const npy_header *header,
                                      float *data)
{
    unsigned char bytes[CHUNK * 8];
    const size_t size = (size_t)element_size(header), total = (size_t)header->count;
    if (fseek(file, (long)header->data_offset, SEEK_SET) != 0)
        return refuse(path, "cannot be read: %s", strerror(errno));
    for (size_t done = 0; done < total;) {
        const size_t count = total - done < CHUNK ? total - done : CHUNK;
        if (fread(bytes, size, count, file) != count)
            return refuse(path, "cannot be read: %s",
                          ferror(file) ? strerror(errno) : "it became shorter meanwhile");
        widen(data + done, bytes, count, (int)size);
        done += count;
    }
    return ATTENTION_OK;
}

// Opens a file whose header is sound and whose size is what the header says.
static attention_status open_npy(const char *path, FILE **file, npy_header *header)
{
    int64_t size = 0;
    attention_status status = open_regular(path, file, &size);
    if (status != ATTENTION_OK) return status;
    status = read_header(path, *file, header);
    if (status == ATTENTION_OK) {
        // Before memory is asked for: a header can claim anything, the file's size cannot.
        const int64_t need = (int64_t)header->data_offset + header->count * element_size(header);
        if (size != need)
            status =
                refuse(path, "%s: its shape needs %" PRId64 " bytes, but the file has %" PRId64,
                       size < need ? "truncated" : "too long", need, size);
    }
    if (status != ATTENTION_OK) fclose(*file);
    return status;
}

attention_status npy_read_header(const char *path, npy_header *header)
{
    FILE *file = NULL;
    npy_header read = {0};
    const attention_status status = open_npy(path, &file, &read);
    if (status != ATTENTION_OK) return status;
    fclose(file);
    *header = read;
    return ATTENTION_OK;
}

attention_status npy_read(const char *path, npy_header *header, float **data)
{
    FILE *file = NULL;
    npy_header read = {0};
    *data = NULL;
    attention_status status = open_npy(path, &file, &read);
    if (status != ATTENTION_OK) return status;
    const int64_t *const d = read.shape;
    status = tensor_new(path, d[0], d[1], d[2], d[3], data);
    if (status == ATTENTION_OK) status = read_elements(path, file, &read, *data);
    fclose(file);
    if (status == ATTENTION_OK) {
        *header = read;
    } else {
        tensor_free(*data);
        *data = NULL;
    }
    return status;
}

// The header as NumPy writes it: padded with spaces to 128 bytes, with a newline at the end.
static void format_header(char bytes[HEADER_WRITTEN], int rank, const int64_t *shape,
                          attention_dtype dtype)
{
    char dict[HEADER_WRITTEN];
    int used = snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        dtype == DTYPE_FP16 ? "<f2" : "<f4");
    for (int i = 0; i < rank; i++)
        used += snprintf(dict + used, sizeof dict - (size_t)used, "%s%" PRId64, i > 0 ? ", " : "",
                         shape[i]);
    used += snprintf(dict + used, sizeof dict - (size_t)used, rank == 1 ? ",), }" : "), }");
    // Whatever the shape, that is short: the digits of all extents together are at most 22.
    memset(bytes, ' ', HEADER_WRITTEN);
    memcpy(bytes, preamble_written, sizeof preamble_written);
    memcpy(bytes + sizeof preamble_written, dict, (size_t)used);
    bytes[HEADER_WRITTEN - 1] = '\n';
}

static void write_elements(FILE *stream, const float *data, size_t total, attention_dtype dtype)
{
    uint16_t half[CHUNK];
    if (dtype != DTYPE_FP16) {
        (void)fwrite(data, sizeof *data, total, stream); // the commit sees a failure
        return;
    }
    for (size_t done = 0; done < total && !ferror(stream); done += CHUNK) {
        const size_t count = total - done < CHUNK ? total - done : CHUNK;
        for (size_t i = 0; i < count; i++) half[i] = fp16_from_float(data[done + i]);
        (void)fwrite(half, sizeof *half, count, stream);
    }
}

attention_status npy_write(const char *path, const float *data, int rank, const int64_t *shape,
                           attention_dtype dtype)
{
    char header[HEADER_WRITTEN];
    int64_t extents[NPY_RANK_MAX] = {1, 1, 1, 1}, count;
    if (rank < 1 || rank > NPY_RANK_MAX)
        return status_fail(ATTENTION_BAD_ARGUMENT, "%s: rank %d; 1 to %d is allowed", path, rank,
                           NPY_RANK_MAX);
    memcpy(extents, shape, (size_t)rank * sizeof *shape);
    attention_status status =
        tensor_count(path, extents[0], extents[1], extents[2], extents[3], &count);
    if (status != ATTENTION_OK) return status;

    output_file file;
    status = output_file_open(&file, path);
    if (status != ATTENTION_OK) return status;
    format_header(header, rank, shape, dtype);
    fwrite(header, 1, sizeof header, file.stream);
    write_elements(file.stream, data, (size_t)count, dtype);
    return output_file_commit(&file);
}
