// test_npy.c: common/npy.c and common/output_file.c: what is read, what is refused and in which
// words, and that a file that could not be written whole is not there at all.
//
// Each test runs in an empty folder of its own, as its working directory.
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "npy.h"
#include "npy/numpy_files.h"
#include "output_file.h"
#include "tensor.h"

enum { NOBODY = 65534 };

static char folder[] = "/tmp/test-npy-XXXXXX";

static void enter_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
}

// Files in the test's folder, all of which `remove_all` removes.
static int count_files(bool remove_all)
{
    int count = 0;
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            count++;
            if (remove_all) remove(entry->d_name);
        }
    if (directory) closedir(directory);
    return count;
}

static void leave_folder(void)
{
    count_files(true);
    cr_expect_eq(rmdir(folder), 0, "the folder could not be removed");
}

TestSuite(npy, .init = enter_folder, .fini = leave_folder, .timeout = 20);
TestSuite(output_file, .init = enter_folder, .fini = leave_folder, .timeout = 20);

static void put(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(name, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

// Puts a file made by NumPy, one of the strings of numpy_files.h.
#define PUT(name, string) put(name, string, sizeof(string) - 1)

static size_t get(const char *name, char *bytes, size_t size)
{
    FILE *file = fopen(name, "rb");
    cr_assert_not_null(file, "%s is not there", name);
    const size_t got = fread(bytes, 1, size, file);
    fclose(file);
    return got;
}

static void expect_content(const char *name, const void *bytes, size_t size)
{
    char got[1024];
    cr_expect_eq(get(name, got, sizeof got), size, "%s has another size", name);
    cr_expect_eq(memcmp(got, bytes, size), 0, "%s has other bytes", name);
}

// A version 1.0 file of this dict and `elements` zero bytes.
static size_t compose(char file[1024], const char *dict, size_t elements)
{
    const size_t length = strlen(dict);
    memset(file, 0, 1024);
    memcpy(file, numpy_f4_rank1, 8);
    file[8] = (char)(length & 0xff);
    file[9] = (char)(length >> 8);
    snprintf(file + 10, 1024 - 10, "%s", dict);
    return 10 + length + elements;
}

static attention_status parse(const char *dict, npy_header *header)
{
    char file[1024];
    const size_t size = compose(file, dict, 0);
    return npy_parse_header("x", (const unsigned char *)file, size, header);
}

// One line that begins with "name: " and contains `words`.
static void expect_message(const char *name, const char *words)
{
    const char *message = status_message();
    const size_t length = strlen(name);
    cr_expect(strncmp(message, name, length) == 0 && strncmp(message + length, ": ", 2) == 0,
              "\"%s\" does not begin with \"%s: \"", message, name);
    cr_expect(strstr(message, words) != NULL, "\"%s\" does not say \"%s\"", message, words);
    for (const char *c = message; *c; c++)
        cr_expect(*c >= ' ' && *c < 127, "\"%s\" has byte 0x%02x", message, (unsigned char)*c);
}

static void expect_unreadable(const char *name, const char *words)
{
    npy_header header;
    float value, *data = &value;
    cr_expect_eq(npy_read(name, &header, &data), ATTENTION_BAD_FILE, "%s, which should say \"%s\"",
                 name, words);
    expect_message(name, words);
    cr_expect_null(data);
    cr_expect_eq(tensor_bytes(), 0);
}

static void expect_dict_refused(const char *dict, const char *words)
{
    npy_header header = {.rank = 77, .count = 78, .data_offset = 79};
    cr_expect_eq(parse(dict, &header), ATTENTION_BAD_FILE, "%s", dict);
    expect_message("x", words);
    cr_expect(header.rank == 77 && header.count == 78 && header.data_offset == 79,
              "a refused header was filled in");
}

static float *read_ok(const char *name, npy_header *header)
{
    float *data = NULL;
    cr_assert_eq(npy_read(name, header, &data), ATTENTION_OK, "%s", status_message());
    cr_assert_not_null(data);
    return data;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void expect_values(const char *name, const float *expected, int64_t count)
{
    npy_header header;
    float *data = read_ok(name, &header);
    cr_expect_eq(header.count, count);
    for (int64_t i = 0; i < count; i++)
        if (isnan(expected[i]))
            cr_expect(isnan(data[i]), "element %" PRId64 " is %a, not NaN", i, data[i]);
        else
            cr_expect_eq(bits_of(data[i]), bits_of(expected[i]),
                         "element %" PRId64 " is %a, not %a", i, data[i], expected[i]);
    tensor_free(data);
}

// ---- Reading what NumPy writes ----

Test(npy, is_a_float32_file_of_numpy_read_bit_for_bit)
{
    const float expected[] = {0.0F, -0.0F, 1, -2.5F, INFINITY, -INFINITY, NAN, 0.1F};
    PUT("a.npy", numpy_f4_rank1);
    expect_values("a.npy", expected, 8);
}

Test(npy, is_a_float16_file_of_numpy_widened_exactly)
{
    const float expected[] = {0.0F, -0.0F,       1,     -2.5F,    INFINITY, -INFINITY,
                              NAN,  0x1.998p-4F, 65504, 0x1p-24F, 0x1p-14F};
    PUT("a.npy", numpy_f2_rank1);
    expect_values("a.npy", expected, 11);
}

Test(npy, is_a_float64_file_of_numpy_rounded_to_nearest_even)
{
    const float expected[] = {0.1F,          INFINITY,  -INFINITY, 0,         1,
                              0x1.000004p0F, 0x1p-149F, INFINITY,  -INFINITY, NAN};
    PUT("a.npy", numpy_f8_rank2);
    expect_values("a.npy", expected, 10);
}

Test(npy, are_ranks_1_to_4_and_their_shapes_read)
{
    npy_header header;
    PUT("1.npy", numpy_f4_rank1);
    PUT("2.npy", numpy_f4_rank2);
    PUT("3.npy", numpy_f4_rank3);
    PUT("4.npy", numpy_f4_rank4);
    const int64_t shapes[4][4] = {{8}, {2, 3}, {1, 2, 3}, {1, 2, 3, 4}};
    for (int rank = 1; rank <= 4; rank++) {
        char name[16];
        snprintf(name, sizeof name, "%d.npy", rank);
        tensor_free(read_ok(name, &header));
        cr_expect_eq(header.rank, rank);
        cr_expect_eq(memcmp(header.shape, shapes[rank - 1], (size_t)rank * 8), 0);
        cr_expect_str_eq(header.type, "f4");
        cr_expect_eq(header.data_offset, 128);
    }
}

Test(npy, are_versions_2_and_3_read_like_version_1)
{
    float expected[24];
    for (int i = 0; i < 24; i++) expected[i] = (float)i;
    PUT("1.npy", numpy_f4_rank4);
    PUT("2.npy", numpy_version_2);
    PUT("3.npy", numpy_version_3);
    expect_values("1.npy", expected, 24);
    expect_values("2.npy", expected, 24);
    expect_values("3.npy", expected, 24);
}

Test(npy, does_any_order_quoting_and_spacing_of_the_dict_parse)
{
    static const char *const dicts[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}",
        "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}\n",
        "{\"fortran_order\":False,\"descr\":\"=f4\",\"shape\":(2,3,),}",
        " \t{ 'shape' :\n( 2 , 3 , ) , 'descr' : \"<f4\" , 'fortran_order' : False , } \r\n",
    };
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++) {
        npy_header header;
        cr_assert_eq(parse(dicts[i], &header), ATTENTION_OK, "%s: %s", dicts[i], status_message());
        cr_expect(header.rank == 2 && header.shape[0] == 2 && header.shape[1] == 3);
        cr_expect_eq(header.count, 6);
        cr_expect_str_eq(header.type, "f4");
        cr_expect_eq(header.data_offset, 10 + strlen(dicts[i]));
    }
}

// ---- Refused headers ----

Test(npy, is_fortran_order_refused_by_name)
{
    PUT("a.npy", numpy_fortran);
    expect_unreadable("a.npy", "Fortran order; only C order");
}

Test(npy, is_big_endian_refused_by_name)
{
    PUT("a.npy", numpy_big_endian);
    expect_unreadable("a.npy", "big-endian elements '>f4'; only '<f2', '<f4' and '<f8'");
}

Test(npy, are_other_element_types_refused_by_name)
{
    PUT("a.npy", numpy_int32);
    expect_unreadable("a.npy", "element type '<i4'; only");
    PUT("a.npy", numpy_int8);
    expect_unreadable("a.npy", "element type '|i1'; only");
    PUT("a.npy", numpy_bool);
    expect_unreadable("a.npy", "element type '|b1'; only");
    PUT("a.npy", numpy_complex64);
    expect_unreadable("a.npy", "element type '<c8'; only");
    PUT("a.npy", numpy_object);
    expect_unreadable("a.npy", "element type '|O'; only");
    PUT("a.npy", numpy_structured);
    expect_unreadable("a.npy", "structured element type; only");
}

Test(npy, are_near_misses_of_a_type_refused)
{
    static const char *const types[] = {"",    "f",   "f4",  "<",    "<f",     "<f16",
                                        "<f3", "|f4", "<F4", " <f4", "<f4,<f4"};
    char dict[128];
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (1,)}",
                 types[i]);
        expect_dict_refused(dict, "element type '");
    }
}

Test(npy, is_rank_0_or_above_4_refused_by_name)
{
    PUT("a.npy", numpy_rank0);
    expect_unreadable("a.npy", "rank 0; 1 to 4");
    PUT("a.npy", numpy_rank5);
    expect_unreadable("a.npy", "rank 5; 1 to 4");
}

static void expect_shape_refused(const char *shape, const char *words)
{
    char dict[512];
    snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);
    expect_dict_refused(dict, words);
}

Test(npy, is_an_extent_of_zero_refused_by_name)
{
    PUT("a.npy", numpy_empty);
    expect_unreadable("a.npy", "an extent of 0; 1 and above");
    expect_shape_refused("(0,)", "an extent of 0");
    expect_shape_refused("(9223372036854775807, 9223372036854775807, 0)", "an extent of 0");
}

Test(npy, is_a_negative_extent_refused_by_name)
{
    expect_shape_refused("(-1,)", "a negative extent; 1 and above");
    expect_shape_refused("(-2, -3)", "a negative extent");
    expect_shape_refused("(-9223372036854775808,)", "a negative extent");
}

Test(npy, is_a_shape_that_overflows_63_bits_refused_by_name)
{
    expect_shape_refused("(9223372036854775808,)", "an extent that does not fit in 63 bits");
    expect_shape_refused("(18446744073709551617,)", "an extent that does not fit in 63 bits");
    expect_shape_refused("(4294967296, 4294967296)", "bytes do not fit in 63 bits");
    expect_shape_refused("(65536, 65536, 65536, 65536)", "bytes do not fit in 63 bits");
    expect_shape_refused("(4611686018427387904, 1)", "bytes do not fit in 63 bits");
}

Test(npy, does_the_largest_countable_file_parse_and_one_element_more_not)
{
    // 2^63 - 1 bytes, less 10 and 68 before the elements, hold 2305843009213693932 floats.
    const char *const most = "{'descr':'<f4','fortran_order':False,'shape':(2305843009213693932,)}";
    npy_header header;
    cr_assert_eq(strlen(most), 68);
    cr_expect_eq(parse(most, &header), ATTENTION_OK, "%s", status_message());
    cr_expect_eq(header.count, 2305843009213693932);
    expect_dict_refused("{'descr':'<f4','fortran_order':False,'shape':(2305843009213693933,)}",
                        "bytes do not fit");
}

Test(npy, is_a_malformed_shape_refused)
{
    expect_shape_refused("(3)", "a shape of one extent without its comma");
    expect_shape_refused("(,)", "malformed header: , where an extent should be");
    expect_shape_refused("(1,,2)", "where an extent should be");
    expect_shape_refused("(1 2)", "where a comma or a closing parenthesis should be");
    expect_shape_refused("(01, 2)", "an extent with a leading zero");
    expect_shape_refused("(1.5, 2)", "where a comma or a closing parenthesis should be");
    expect_shape_refused("(1e3, 2)", "where a comma or a closing parenthesis should be");
    expect_shape_refused("(0x10, 2)", "extent");
    expect_shape_refused("(+1, 2)", "where an extent should be");
    expect_shape_refused("(- 1, 2)", "a negative extent");
    expect_shape_refused("('1', 2)", "where an extent should be");
    expect_shape_refused("[1, 2]", "where the shape in parentheses should be");
    expect_shape_refused("3", "where the shape in parentheses should be");
    expect_shape_refused("((1, 2))", "where an extent should be");
    expect_shape_refused("(1, 2", "} where an extent should be");
}

Test(npy, is_a_missing_duplicate_or_unknown_key_refused_by_name)
{
    expect_dict_refused("{}", "key 'descr' is missing");
    expect_dict_refused("{'fortran_order': False, 'shape': (1,)}", "key 'descr' is missing");
    expect_dict_refused("{'descr': '<f4', 'shape': (1,)}", "key 'fortran_order' is missing");
    expect_dict_refused("{'descr': '<f4', 'fortran_order': False}", "key 'shape' is missing");
    expect_dict_refused("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
                        "key 'descr' stands there twice");
    expect_dict_refused("{'shape': (1,), 'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
                        "key 'shape' stands there twice");
    expect_dict_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}",
                        "unknown key 'x'; 'descr', 'fortran_order' and 'shape' are allowed");
    expect_dict_refused("{'Shape': (1,)}", "unknown key 'Shape'");
    expect_dict_refused("{'': (1,)}", "unknown key ''");
    expect_dict_refused("{'sha\x01pe\xe9s': (1,)}", "unknown key 'sha?pe?s'");
}

Test(npy, is_a_malformed_dict_refused)
{
    expect_dict_refused("", "its end where an opening brace should be, at byte 0");
    expect_dict_refused("   ", "its end where an opening brace should be, at byte 3");
    expect_dict_refused("['descr']", "[ where an opening brace should be");
    expect_dict_refused("{", "its end where a key in quotes should be");
    expect_dict_refused("{,}", "where a key in quotes should be");
    expect_dict_refused("{descr: '<f4'}", "d where a key in quotes should be, at byte 1");
    expect_dict_refused("{'descr", "its end where a closing quote should be");
    expect_dict_refused("{'descr\": 4}", "its end where a closing quote should be");
    expect_dict_refused("{'des\\x63r': '<f4'}", "\\ where a closing quote should be");
    expect_dict_refused("{'descr'", "its end where a colon should be");
    expect_dict_refused("{'descr' '<f4'}", "where a colon should be");
    expect_dict_refused("{'descr': }", "} where the element type in quotes should be");
    expect_dict_refused("{'descr': 4}", "where the element type in quotes should be");
    expect_dict_refused("{'descr': '<f4' 'shape': (1,)}",
                        "where a comma or a closing brace should");
    expect_dict_refused("{'descr': '<f4',, 'shape': (1,)}", "where a key in quotes should be");
    expect_dict_refused("{'fortran_order': false}", "f where True or False should be");
    expect_dict_refused("{'fortran_order': 0}", "where True or False should be");
    expect_dict_refused("{'fortran_order': Falsehood}", "h where a comma or a closing brace");
    expect_dict_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
                        "its end where a comma or a closing brace should be");
    expect_dict_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
                        "x where nothing should be");
    expect_dict_refused("{\x7f", "byte 0x7f where");
}

Test(npy, does_a_nul_byte_in_the_dict_end_nothing)
{
    char file[1024];
    npy_header header;
    const size_t size =
        compose(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}~~~", 0);
    file[size - 3] = '\0';
    cr_expect_eq(npy_parse_header("x", (unsigned char *)file, size, &header), ATTENTION_BAD_FILE);
    expect_message("x", "byte 0x00 where nothing should be");
}

Test(npy, is_a_long_key_cut_in_the_message)
{
    char dict[512];
    memset(dict, 'k', sizeof dict);
    dict[0] = '{';
    dict[1] = dict[500] = '\'';
    dict[511] = '\0';
    expect_dict_refused(dict, "unknown key 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk'; 'descr'");
}

Test(npy, is_another_kind_of_file_refused_by_name)
{
    put("a.npy", "", 0);
    expect_unreadable("a.npy", "not an .npy file");
    put("a.npy", "\x93NUMP", 5);
    expect_unreadable("a.npy", "not an .npy file");
    PUT("a.npy", "PK\003\004 a zip file, as np.savez writes");
    expect_unreadable("a.npy", "not an .npy file: it does not begin with the bytes \\x93NUMPY");
}

Test(npy, is_an_unknown_version_refused_by_name)
{
    char file[sizeof numpy_f4_rank1];
    memcpy(file, numpy_f4_rank1, sizeof file);
    file[6] = 4;
    put("a.npy", file, sizeof file - 1);
    expect_unreadable("a.npy", "version 4.0; 1.0, 2.0 and 3.0 are allowed");
    file[6] = 0;
    put("a.npy", file, sizeof file - 1);
    expect_unreadable("a.npy", "version 0.0; ");
    file[6] = 1;
    file[7] = 1;
    put("a.npy", file, sizeof file - 1);
    expect_unreadable("a.npy", "version 1.1; ");
}

Test(npy, is_a_header_longer_than_the_file_refused_by_name)
{
    char file[sizeof numpy_f4_rank1];
    memcpy(file, numpy_f4_rank1, sizeof file);
    file[8] = (char)0xff;
    file[9] = (char)0xff;
    put("a.npy", file, sizeof file - 1);
    expect_unreadable("a.npy", "a header of 65535 bytes, but the file has only 150 left for it");
}

// A version 2.0 file whose dict is padded to `length` bytes, and one element.
static void put_padded(const char *name, size_t length)
{
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    const size_t size = 12 + length + 4;
    const float one = 1;
    char *file = malloc(size);
    cr_assert_not_null(file);
    memcpy(file, numpy_version_2, 8);
    for (int i = 0; i < 4; i++) file[8 + i] = (char)(length >> 8 * i & 0xff);
    snprintf(file + 12, length + 1, "%-*s", (int)length, dict);
    memcpy(file + 12 + length, &one, sizeof one);
    put(name, file, size);
    free(file);
}

Test(npy, is_a_header_of_64_KiB_read_and_one_byte_more_refused)
{
    const float one = 1;
    put_padded("a.npy", 65536);
    expect_values("a.npy", &one, 1);
    put_padded("b.npy", 65537);
    expect_unreadable("b.npy", "a header of 65537 bytes; at most 65536 are allowed");
}

Test(npy, is_every_shortened_file_refused_without_reading_past_its_end)
{
    const size_t whole = sizeof numpy_version_2 - 1;
    for (size_t size = 0; size < whole; size++) {
        npy_header header;
        unsigned char *bytes = malloc(size ? size : 1); // exact, so that ASan sees one byte more
        cr_assert_not_null(bytes);
        memcpy(bytes, numpy_version_2, size);
        const attention_status status = npy_parse_header("x", bytes, size, &header);
        cr_expect_eq(status, size < 128 ? ATTENTION_BAD_FILE : ATTENTION_OK, "%zu bytes", size);
        put("a.npy", bytes, size);
        expect_unreadable("a.npy", size < 128 ? "" : "truncated");
        free(bytes);
    }
}

Test(npy, is_every_shortened_dict_refused_without_reading_past_its_end)
{
    const char *dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 34), }";
    for (size_t length = 0; length < strlen(dict); length++) {
        char file[1024], part[128];
        snprintf(part, sizeof part, "%.*s", (int)length, dict);
        const size_t size = compose(file, part, 0);
        unsigned char *bytes = malloc(size);
        npy_header header;
        cr_assert_not_null(bytes);
        memcpy(bytes, file, size);
        cr_expect_eq(npy_parse_header("x", bytes, size, &header), ATTENTION_BAD_FILE, "%s", part);
        expect_message("x", "malformed header: ");
        free(bytes);
    }
}

// ---- Refused files ----

Test(npy, is_a_short_file_refused_with_both_byte_counts)
{
    put("a.npy", numpy_f4_rank4, sizeof numpy_f4_rank4 - 2);
    expect_unreadable("a.npy", "truncated: its shape needs 224 bytes, but the file has 223");
}

Test(npy, is_a_long_file_refused_with_both_byte_counts)
{
    put("a.npy", numpy_f4_rank4, sizeof numpy_f4_rank4); // its terminating zero, too
    expect_unreadable("a.npy", "too long: its shape needs 224 bytes, but the file has 225");
}

Test(npy, is_a_huge_claim_refused_by_the_file_s_size_and_not_by_memory)
{
    char file[1024];
    const char *dict = "{'descr': '<f2', 'fortran_order': False, 'shape': (1099511627776, 1024)}";
    put("a.npy", file, compose(file, dict, 16));
    expect_unreadable("a.npy", "needs 2251799813685330 bytes, but the file has 98");
}

Test(npy, is_a_missing_file_refused_with_the_reason)
{
    expect_unreadable("nowhere.npy", "cannot be read: No such file or directory");
    expect_unreadable("nowhere/a.npy", "cannot be read: No such file or directory");
}

Test(npy, is_a_folder_refused_by_name)
{
    cr_assert_eq(mkdir("d.npy", 0777), 0);
    expect_unreadable("d.npy", "is a directory; only regular files can be read");
}

Test(npy, is_a_pipe_refused_without_waiting_for_its_writer)
{
    cr_assert_eq(mkfifo("pipe", 0666), 0);
    expect_unreadable("pipe", "is a pipe or a device; only regular files can be read");
    expect_unreadable("/dev/zero", "is a pipe or a device; only regular files can be read");
}

// Root may write anywhere, so root becomes somebody else; 0 ends that.
static void become(uid_t user)
{
    if (getuid() == 0) cr_assert_eq(seteuid(user), 0);
}

Test(npy, is_an_unreadable_file_refused_with_the_reason)
{
    PUT("a.npy", numpy_f4_rank1);
    cr_assert_eq(chmod(folder, 0755) | chmod("a.npy", 0), 0);
    become(NOBODY);
    expect_unreadable("a.npy", "cannot be read: Permission denied");
    become(0);
}

static int lowest_free_descriptor(void)
{
    const int descriptor = dup(STDERR_FILENO);
    close(descriptor);
    return descriptor;
}

Test(npy, are_all_files_closed_again)
{
    static const char *const refused[] = {"short.npy", "pipe", "d", "nowhere.npy"};
    npy_header header;
    float *data;
    const int64_t one = 1;
    const int before = lowest_free_descriptor();
    PUT("a.npy", numpy_f4_rank1);
    put("short.npy", numpy_f4_rank1, 140);
    cr_assert_eq(mkfifo("pipe", 0666) | mkdir("d", 0777), 0);
    tensor_free(read_ok("a.npy", &header));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        cr_expect_eq(npy_read(refused[i], &header, &data), ATTENTION_BAD_FILE);
    cr_expect_eq(npy_write("b.npy", (float[]){1}, 1, &one, DTYPE_FP32), ATTENTION_OK);
    cr_expect_eq(npy_write("d", (float[]){1}, 1, &one, DTYPE_FP32), ATTENTION_BAD_FILE);
    cr_expect_eq(npy_write("/dev/full", (float[]){1}, 1, &one, DTYPE_FP32), ATTENTION_WRITE_FAILED);
    cr_expect_eq(lowest_free_descriptor(), before);
}

// ---- Writing ----

Test(npy, are_written_files_those_of_numpy_byte_for_byte)
{
    float x[24];
    const int64_t shape[] = {1, 2, 3, 4}, half_shape[] = {1, 1, 3, 2};
    for (int i = 0; i < 24; i++) x[i] = (float)i;
    cr_assert_eq(npy_write("4.npy", x, 4, shape, DTYPE_FP32), ATTENTION_OK);
    cr_assert_eq(npy_write("3.npy", x, 3, shape, DTYPE_FP32), ATTENTION_OK);
    cr_assert_eq(npy_write("2.npy", x, 2, shape + 1, DTYPE_FP32), ATTENTION_OK);
    cr_assert_eq(npy_write("b.npy", x, 4, shape, DTYPE_BF16), ATTENTION_OK);
    cr_assert_eq(npy_write("h.npy", x, 4, half_shape, DTYPE_FP16), ATTENTION_OK);
    expect_content("4.npy", numpy_f4_rank4, sizeof numpy_f4_rank4 - 1);
    expect_content("3.npy", numpy_f4_rank3, sizeof numpy_f4_rank3 - 1);
    expect_content("2.npy", numpy_f4_rank2, sizeof numpy_f4_rank2 - 1);
    expect_content("b.npy", numpy_f4_rank4, sizeof numpy_f4_rank4 - 1);
    expect_content("h.npy", numpy_f2_rank4, sizeof numpy_f2_rank4 - 1);
}

Test(npy, are_special_values_written_as_numpy_writes_them)
{
    const float x[] = {0.0F, -0.0F, 1,     -2.5F,    INFINITY, -INFINITY,
                       NAN,  0.1F,  65504, 0x1p-24F, 0x1p-14F};
    const int64_t eight = 8, eleven = 11;
    cr_assert_eq(npy_write("f4.npy", x, 1, &eight, DTYPE_FP32), ATTENTION_OK);
    cr_assert_eq(npy_write("f2.npy", x, 1, &eleven, DTYPE_FP16), ATTENTION_OK);
    expect_content("f4.npy", numpy_f4_rank1, sizeof numpy_f4_rank1 - 1);
    expect_content("f2.npy", numpy_f2_rank1, sizeof numpy_f2_rank1 - 1);
}

// More elements than are converted at a time, and not a multiple of it.
enum { MANY = 3 * 8192 + 5 };

static void check_round_trip(attention_dtype dtype, const char *type)
{
    static float x[MANY];
    const int64_t shape[] = {1, 1, MANY, 1};
    npy_header header;
    for (int i = 0; i < MANY; i++) x[i] = (float)(i % 2048) - 1024; // exact in float16
    cr_assert_eq(npy_write("a.npy", x, 4, shape, dtype), ATTENTION_OK);
    expect_values("a.npy", x, MANY);
    tensor_free(read_ok("a.npy", &header));
    cr_expect_str_eq(header.type, type);
    cr_expect(header.rank == 4 && header.shape[2] == MANY);
    cr_expect_eq(count_files(false), 1, "something else was left beside the file");
}

Test(npy, does_a_large_float32_tensor_survive_a_round_trip)
{
    check_round_trip(DTYPE_FP32, "f4");
}

Test(npy, does_a_large_float16_tensor_survive_a_round_trip)
{
    check_round_trip(DTYPE_FP16, "f2");
}

Test(npy, is_a_large_float64_file_read_whole)
{
    static char file[128 + sizeof(double) * MANY];
    static float expected[MANY];
    char dict[80];
    snprintf(dict, sizeof dict, "{'descr': '<f8', 'fortran_order': False, 'shape': (%d,), }", MANY);
    memcpy(file, numpy_f8_rank2, 10);
    snprintf(file + 10, 119, "%-117s\n", dict);
    for (size_t i = 0; i < MANY; i++) {
        const double value = (double)i + 1.0 / 3;
        memcpy(file + 128 + 8 * i, &value, 8);
        expected[i] = (float)value;
    }
    put("a.npy", file, sizeof file);
    expect_values("a.npy", expected, MANY);
}

Test(npy, is_a_bad_shape_to_write_refused_before_a_file_is_made)
{
    const float x = 1;
    const int64_t zero[] = {1, 0}, huge[] = {4294967296, 4294967296};
    cr_expect_eq(npy_write("a.npy", &x, 2, zero, DTYPE_FP32), ATTENTION_BAD_ARGUMENT);
    cr_expect_eq(npy_write("a.npy", &x, 0, zero, DTYPE_FP32), ATTENTION_BAD_ARGUMENT);
    expect_message("a.npy", "rank 0; 1 to 4 is allowed");
    cr_expect_eq(npy_write("a.npy", &x, 5, zero, DTYPE_FP32), ATTENTION_BAD_ARGUMENT);
    cr_expect_eq(npy_write("a.npy", &x, 2, huge, DTYPE_FP32), ATTENTION_NO_MEMORY);
    cr_expect_eq(count_files(false), 0);
}

// ---- Writes that fail ----

Test(npy, is_a_full_device_noticed)
{
    static float x[MANY];
    const int64_t one = 1, many = MANY;
    cr_expect_eq(npy_write("/dev/full", x, 1, &one, DTYPE_FP32), ATTENTION_WRITE_FAILED);
    expect_message("/dev/full", "could not be written in full: No space left on device");
    cr_expect_eq(npy_write("/dev/full", x, 1, &many, DTYPE_FP32), ATTENTION_WRITE_FAILED);
    cr_expect_eq(npy_write("/dev/full", x, 1, &many, DTYPE_FP16), ATTENTION_WRITE_FAILED);
}

// A disk that takes `bytes` of each file: the limit's signal off, its error like that of a disk.
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static attention_status write_limited(const char *name, rlim_t bytes, attention_dtype dtype)
{
    static float x[MANY];
    const int64_t many = MANY;
    limit_files(bytes);
    const attention_status status = npy_write(name, x, 1, &many, dtype);
    limit_files(RLIM_INFINITY);
    return status;
}

Test(npy, does_a_failed_write_leave_neither_target_nor_temporary_file)
{
    const rlim_t limits[] = {0, 64, 128, 4096, 40000, 128 + 2 * MANY - 1};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        cr_expect_eq(write_limited("a.npy", limits[i], DTYPE_FP32), ATTENTION_WRITE_FAILED);
        expect_message("a.npy", "could not be written in full: File too large");
        cr_expect_eq(count_files(false), 0, "a limit of %ju bytes", (uintmax_t)limits[i]);
        cr_expect_eq(write_limited("a.npy", limits[i], DTYPE_FP16), ATTENTION_WRITE_FAILED);
        cr_expect_eq(count_files(false), 0, "a limit of %ju bytes", (uintmax_t)limits[i]);
    }
}

Test(npy, does_an_existing_file_survive_a_failed_write)
{
    PUT("a.npy", numpy_f4_rank4);
    cr_expect_eq(write_limited("a.npy", 4096, DTYPE_FP32), ATTENTION_WRITE_FAILED);
    expect_content("a.npy", numpy_f4_rank4, sizeof numpy_f4_rank4 - 1);
    cr_expect_eq(count_files(false), 1);
}

static void expect_unwritable(const char *name, const char *reason)
{
    const float x = 1;
    const int64_t one = 1;
    char words[128];
    snprintf(words, sizeof words, "cannot be written: %s", reason);
    cr_expect_eq(npy_write(name, &x, 1, &one, DTYPE_FP32), ATTENTION_BAD_FILE, "%s", name);
    expect_message(name, words);
}

Test(npy, is_an_unwritable_folder_refused_with_the_reason)
{
    cr_assert_eq(chmod(folder, 0555), 0);
    become(NOBODY);
    expect_unwritable("a.npy", "Permission denied");
    become(0);
    cr_expect_eq(count_files(false), 0);
    cr_assert_eq(chmod(folder, 0755), 0);
}

Test(npy, is_a_read_only_file_refused_though_its_folder_is_writable)
{
    PUT("a.npy", numpy_f4_rank4);
    cr_assert_eq(chmod(folder, 0777) | chmod("a.npy", 0444), 0);
    become(NOBODY);
    expect_unwritable("a.npy", "Permission denied");
    become(0);
    expect_content("a.npy", numpy_f4_rank4, sizeof numpy_f4_rank4 - 1);
}

Test(npy, is_a_folder_or_a_name_in_no_folder_refused_as_target)
{
    cr_assert_eq(mkdir("d", 0777), 0);
    expect_unwritable("d", "Is a directory");
    expect_unwritable("d/", "Is a directory");
    expect_unwritable("new/", "Is a directory");
    expect_unwritable("nowhere/a.npy", "No such file or directory");
    expect_unwritable("", "No such file or directory");
    put("file", "", 0);
    expect_unwritable("file/a.npy", "Not a directory");
    cr_expect_eq(count_files(false), 2);
}

// ---- output_file ----

static output_file open_ok(const char *name)
{
    output_file file;
    cr_assert_eq(output_file_open(&file, name), ATTENTION_OK, "%s", status_message());
    cr_assert_not_null(file.stream);
    return file;
}

static mode_t mode_of(const char *name)
{
    struct stat info;
    cr_assert_eq(stat(name, &info), 0);
    return info.st_mode & 07777;
}

Test(output_file, does_a_file_appear_only_when_it_is_committed)
{
    output_file file = open_ok("a");
    fputs("new", file.stream);
    cr_expect_neq(access("a", F_OK), 0);
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    expect_content("a", "new", 3);
    cr_expect_eq(count_files(false), 1);
}

Test(output_file, does_an_old_file_stay_until_the_new_one_is_committed)
{
    put("a", "old", 3);
    output_file file = open_ok("a");
    fputs("newer", file.stream);
    fflush(file.stream);
    expect_content("a", "old", 3);
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    expect_content("a", "newer", 5);
}

Test(output_file, does_discarding_leave_the_folder_as_it_was)
{
    output_file file = open_ok("a");
    fputs("new", file.stream);
    output_file_discard(&file);
    cr_expect_eq(count_files(false), 0);
    output_file_discard(&file); // and once more does nothing
    put("a", "old", 3);
    file = open_ok("a");
    output_file_discard(&file);
    expect_content("a", "old", 3);
    cr_expect_eq(count_files(false), 1);
}

Test(output_file, does_a_new_file_get_the_mode_that_umask_asks_for)
{
    umask(027);
    output_file file = open_ok("a");
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    cr_expect_eq(mode_of("a"), 0640, "mode %o", (unsigned)mode_of("a"));
    cr_expect_eq(umask(022), 027, "umask was changed");
}

Test(output_file, does_a_replaced_file_keep_its_mode)
{
    put("a", "old", 3);
    cr_assert_eq(chmod("a", 0600), 0);
    output_file file = open_ok("a");
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    cr_expect_eq(mode_of("a"), 0600);
}

Test(output_file, does_a_symbolic_link_stay_one)
{
    struct stat info;
    put("a", "old", 3);
    cr_assert_eq(symlink("a", "link"), 0);
    output_file file = open_ok("link");
    fputs("new", file.stream);
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    cr_expect(lstat("link", &info) == 0 && S_ISLNK(info.st_mode), "the link was replaced");
    expect_content("a", "new", 3);
    cr_expect_eq(count_files(false), 2);
}

Test(output_file, is_a_pipe_written_directly)
{
    struct stat info;
    char got[8];
    cr_assert_eq(mkfifo("pipe", 0666), 0);
    const int reader = open("pipe", O_RDONLY | O_NONBLOCK);
    output_file file = open_ok("pipe");
    cr_expect_null(file.scratch);
    fputs("new", file.stream);
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    cr_expect(stat("pipe", &info) == 0 && S_ISFIFO(info.st_mode), "the pipe was replaced");
    cr_expect_eq(read(reader, got, sizeof got), 3);
    close(reader);
}

Test(output_file, is_an_early_failed_write_remembered_at_commit)
{
    output_file file = open_ok("a");
    limit_files(4);
    fputs("more than four", file.stream);
    cr_expect_neq(fflush(file.stream), 0);
    limit_files(RLIM_INFINITY);
    cr_expect_eq(output_file_commit(&file), ATTENTION_WRITE_FAILED);
    cr_expect_eq(count_files(false), 0);
}

Test(output_file, is_a_failed_rename_reported_and_the_temporary_file_removed)
{
    output_file file = open_ok("a");
    fputs("new", file.stream);
    cr_assert_eq(mkdir("a", 0777), 0);
    cr_expect_eq(output_file_commit(&file), ATTENTION_WRITE_FAILED);
    expect_message("a", "could not be written in full: Is a directory");
    cr_expect_eq(count_files(false), 1);
}

Test(output_file, may_a_name_be_as_long_as_the_file_system_allows)
{
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    output_file file = open_ok(name);
    cr_expect_eq(output_file_commit(&file), ATTENTION_OK);
    cr_expect_eq(access(name, F_OK), 0);
}

Test(output_file, is_a_longer_name_or_a_link_to_itself_refused_when_opened)
{
    char name[257];
    output_file file;
    memset(name, 'n', 256);
    name[256] = '\0';
    cr_expect_eq(output_file_open(&file, name), ATTENTION_BAD_FILE);
    expect_message(name, "cannot be written: File name too long");
    cr_assert_eq(symlink("loop", "loop"), 0);
    cr_expect_eq(output_file_open(&file, "loop"), ATTENTION_BAD_FILE);
    expect_message("loop", "cannot be written: Too many levels of symbolic links");
    cr_expect_eq(count_files(false), 1);
}

Test(output_file, is_text_lost_on_the_way_to_stdout_reported)
{
    cr_expect_eq(stdout_flush(), ATTENTION_OK);
    cr_assert_not_null(freopen("/dev/full", "w", stdout));
    printf("lost\n");
    cr_expect_eq(stdout_flush(), ATTENTION_WRITE_FAILED);
    expect_message("standard output", "could not be written in full: No space left on device");
    cr_expect_eq(stdout_flush(), ATTENTION_WRITE_FAILED, "the second call forgot");
}
