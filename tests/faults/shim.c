/* Stands between a process and the C library, counts its calls on files below one folder, and at a chosen call
 * kills the process or lets the call fail. Loaded with LD_PRELOAD; controlled through a page of shared memory
 * (struct control, whose twin is in shim.py), so that a fork server sets it anew for each child.
 *
 * A call is counted where its path, or the path of its descriptor, lies below control->prefix. What it does on a
 * hit is control->action. With control->trace set, each call is appended to that file as one record.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH_BYTES 1024

enum op {
    OPEN, OPEN_WRITE, CREATE, READ, WRITE, TRUNCATE, SYNC, RENAME, LINK, UNLINK, MKDIR, RMDIR, MODE, OWNER,
    ALLOCATE, COPY, MMAP, LOCK, STATVFS, OPENDIR, READDIR, STAT, READLINK, TIMES, SYNC_ALL, OP_COUNT
};

enum action { NOTHING, KILL_BEFORE, KILL_AFTER, TEAR, FAIL, SHORTEN, CUT_BEFORE, CUT_AFTER, REPLACE_BEFORE };

struct control {
    int32_t armed;
    int32_t action;
    int32_t error; /* of a call that fails; the eighths that a file is cut to */
    int32_t persistent; /* from call `at` on, each call of `ops` */
    uint64_t ops;       /* bits: the operations that may be hit */
    int64_t at;         /* number of the call, from 1 */
    int64_t count;
    int64_t hits;
    int32_t hit_op;
    int32_t with_data; /* the trace holds what is written */
    int32_t freezes;   /* instead of a kill the disk stands still: no later call does anything but fail */
    int32_t frozen;
    int32_t run;       /* another number for each run */
    int32_t counted_op;   /* where counted_left is set, `at` becomes the number of the call that brings it to 0: */
    int64_t counted_left; /* those of this operation, on such a path */
    char counted_path[PATH_BYTES];
    char prefix[PATH_BYTES];
    char trace[PATH_BYTES];
    char hit_path[PATH_BYTES];
    int64_t op_counts[OP_COUNT];
};

enum { CREATED = 1, TRUNCATED = 2 };

struct record {
    uint32_t size;
    uint16_t op, flags;
    int32_t error, padding;
    int64_t result;
    uint64_t inode;
    int64_t offset, length;
    uint16_t path_bytes, target_bytes;
    uint32_t data_bytes;
};

struct call {
    enum op op;
    int is_counted, is_hit, flags;
    int64_t number, offset, length;
    uint64_t inode;
    char path[PATH_BYTES], target[PATH_BYTES];
    const struct iovec *data;
    int data_count;
};

static struct control *control;
static pthread_mutex_t trace_lock = PTHREAD_MUTEX_INITIALIZER;
static int trace_descriptor = -1;
static int traced_run;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("FAULTS_CONTROL");
    if (!path) return;
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    if (descriptor < 0) return;
    void *mapped = (void *)syscall(
        SYS_mmap, 0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    syscall(SYS_close, descriptor);
    if (mapped != MAP_FAILED) control = mapped;
}

static int is_armed(void) { return control && control->armed; }

/* -- paths -------------------------------------------------------------------------------------------------- */

static void path_of_descriptor(int descriptor, char *into)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    long count = syscall(SYS_readlinkat, AT_FDCWD, link, into, PATH_BYTES - 1);
    into[count < 0 ? 0 : count] = 0;
}

static void path_at(int folder, const char *path, char *into)
{
    into[0] = 0;
    if (!path) return;
    if (path[0] == '/') {
        snprintf(into, PATH_BYTES, "%s", path);
        return;
    }
    char start_folder[PATH_BYTES];
    if (folder != AT_FDCWD)
        path_of_descriptor(folder, start_folder);
    else if (syscall(SYS_getcwd, start_folder, PATH_BYTES) < 0)
        start_folder[0] = 0;
    if (!path[0] || !strcmp(path, "."))
        snprintf(into, PATH_BYTES, "%s", start_folder);
    else if (strlen(start_folder) + strlen(path) + 2 < PATH_BYTES) {
        strcpy(into, start_folder);
        strcat(into, "/");
        strcat(into, path);
    }
}

static uint64_t inode_of(int folder, const char *path)
{
    struct stat found;
    long answer = path ? syscall(SYS_newfstatat, folder, path, &found, AT_SYMLINK_NOFOLLOW)
                       : syscall(SYS_fstat, folder, &found);
    return answer < 0 ? 0 : found.st_ino;
}

/* -- the life of a call --------------------------------------------------------------------------------------- */

static void die(void)
{
    for (;;) syscall(SYS_kill, getpid(), SIGKILL);
}

static void end(void)
{
    if (!control->freezes) die();
    control->frozen = 1;
}

static int is_below(const char *path)
{
    size_t length = strlen(control->prefix);
    return length && !strncmp(path, control->prefix, length) && (path[length] == '/' || !path[length]);
}

/* What somebody else may do to a file while it is read. */
static void spoil(const char *path)
{
    struct stat found;
    if (syscall(SYS_newfstatat, AT_FDCWD, path, &found, 0) < 0 || !S_ISREG(found.st_mode)) return;
    if (control->action != REPLACE_BEFORE) {
        syscall(SYS_truncate, path, found.st_size / 8 * control->error);
        return;
    }
    static const char other[] = "another file altogether";
    syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    int made = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (made < 0) return;
    if (syscall(SYS_write, made, other, sizeof other) < 0) die();
    syscall(SYS_close, made);
}

/* Counts the call; returns 1 where it is to fail, errno set. */
static int enter(struct call *call)
{
    if (!is_below(call->path) && !is_below(call->target)) return 0;
    if (control->frozen) {
        errno = EIO;
        return 1;
    }
    call->is_counted = 1;
    call->number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&control->op_counts[call->op], 1, __ATOMIC_SEQ_CST);
    if (control->counted_left > 0 && (int)call->op == control->counted_op &&
        !fnmatch(control->counted_path, call->path, 0) &&
        !__atomic_sub_fetch(&control->counted_left, 1, __ATOMIC_SEQ_CST))
        control->at = call->number;
    int is_its_turn = call->number == control->at || (control->persistent && call->number > control->at);
    if (!control->at || !is_its_turn || !(control->ops >> call->op & 1)) return 0;
    call->is_hit = 1;
    if (__atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST) == 1) {
        control->hit_op = call->op;
        strcpy(control->hit_path, call->path);
    }
    if (control->action == KILL_BEFORE) {
        end();
        call->is_counted = 0;
        errno = EIO;
        return 1;
    }
    if (control->action == CUT_BEFORE || control->action == REPLACE_BEFORE) spoil(call->path);
    if (control->action == FAIL) {
        errno = control->error;
        return 1;
    }
    return 0;
}

static void append(const void *data, size_t size)
{
    const char *next = data;
    while (size) {
        long written = syscall(SYS_write, trace_descriptor, next, size);
        if (written <= 0) die();
        next += written;
        size -= (size_t)written;
    }
}

static void trace(const struct call *call, int64_t result, int error)
{
    size_t data_bytes = control->with_data && call->data && result > 0 ? (size_t)result : 0;
    struct record record = {
        .op = (uint16_t)call->op, .flags = (uint16_t)call->flags, .error = result < 0 ? error : 0,
        .result = result, .inode = call->inode, .offset = call->offset, .length = call->length,
        .path_bytes = (uint16_t)strlen(call->path), .target_bytes = (uint16_t)strlen(call->target),
        .data_bytes = (uint32_t)data_bytes,
    };
    record.size = (uint32_t)(sizeof record + record.path_bytes + record.target_bytes + data_bytes);
    pthread_mutex_lock(&trace_lock);
    if (trace_descriptor < 0 || traced_run != control->run) {
        if (trace_descriptor >= 0) syscall(SYS_close, trace_descriptor);
        traced_run = control->run;
        int opened = (int)syscall(
            SYS_openat, AT_FDCWD, control->trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        trace_descriptor = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 500);
        syscall(SYS_close, opened);
    }
    append(&record, sizeof record);
    append(call->path, record.path_bytes);
    append(call->target, record.target_bytes);
    for (int i = 0; data_bytes && i < call->data_count; i++) {
        size_t part = call->data[i].iov_len < data_bytes ? call->data[i].iov_len : data_bytes;
        append(call->data[i].iov_base, part);
        data_bytes -= part;
    }
    pthread_mutex_unlock(&trace_lock);
}

/* Ends the call: the trace, and the kill that comes after it. */
static void leave(const struct call *call, int64_t result)
{
    int error = errno;
    if (!call->is_counted) return;
    if (control->trace[0]) trace(call, result, error);
    if (call->is_hit && (control->action == KILL_AFTER || control->action == TEAR)) end();
    if (call->is_hit && control->action == CUT_AFTER) spoil(call->path);
    errno = error;
}

static size_t shortened(const struct call *call, size_t count)
{
    int is_cut = call->is_hit && (control->action == TEAR || control->action == SHORTEN);
    return is_cut && count > 1 ? count / 2 : count;
}

#define ON_PATH(operation, folder, name) \
    struct call call = {.op = operation}; \
    if (is_armed()) { \
        path_at(folder, name, call.path); \
        if (enter(&call)) { leave(&call, -1); return -1; } \
    }

#define ON_DESCRIPTOR(operation, descriptor) \
    struct call call = {.op = operation}; \
    if (is_armed()) { \
        path_of_descriptor(descriptor, call.path); \
        if (enter(&call)) { leave(&call, -1); return -1; } \
        if (call.is_counted) call.inode = inode_of(descriptor, NULL); \
    }

#define DONE(expression) \
    do { \
        int64_t outcome = (int64_t)(expression); \
        leave(&call, outcome); \
        return (__typeof__(expression))outcome; \
    } while (0)

/* -- open ------------------------------------------------------------------------------------------------------ */

static int open_file(int folder, const char *path, int flags, mode_t mode)
{
    int makes = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
    ON_PATH(makes ? CREATE : (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC ? OPEN_WRITE : OPEN, folder, path)
    int is_new = call.is_counted && makes && !inode_of(folder, path);
    long opened = syscall(SYS_openat, folder, path, flags | O_LARGEFILE, mode);
    int error = errno;
    if (call.is_counted && opened >= 0) {
        call.inode = inode_of((int)opened, NULL);
        call.flags = (is_new ? CREATED : 0) | (flags & O_TRUNC ? TRUNCATED : 0);
    }
    errno = error;
    DONE((int)opened);
}

#define MODE_ARGUMENT \
    mode_t mode = 0; \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode = va_arg(arguments, mode_t); \
        va_end(arguments); \
    }

int open(const char *path, int flags, ...) { MODE_ARGUMENT return open_file(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE_ARGUMENT return open_file(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE_ARGUMENT return open_file(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE_ARGUMENT return open_file(folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

/* -- read and write -------------------------------------------------------------------------------------------- */

static ssize_t read_parts(int descriptor, const struct iovec *parts, int count, int64_t offset)
{
    ON_DESCRIPTOR(READ, descriptor)
    struct iovec first = count ? parts[0] : (struct iovec){0};
    size_t fewer = shortened(&call, first.iov_len);
    if (fewer != first.iov_len) { first.iov_len = fewer; parts = &first; count = 1; }
    call.offset = offset;
    DONE((ssize_t)(offset < 0 ? syscall(SYS_readv, descriptor, parts, count)
                              : syscall(SYS_preadv, descriptor, parts, count, offset, 0)));
}

static ssize_t write_parts(int descriptor, const struct iovec *parts, int count, int64_t offset)
{
    ON_DESCRIPTOR(WRITE, descriptor)
    struct iovec first = count ? parts[0] : (struct iovec){0};
    size_t fewer = shortened(&call, first.iov_len);
    if (fewer != first.iov_len) { first.iov_len = fewer; parts = &first; count = 1; }
    call.data = parts;
    call.data_count = count;
    long written = offset < 0 ? syscall(SYS_writev, descriptor, parts, count)
                              : syscall(SYS_pwritev, descriptor, parts, count, offset, 0);
    int error = errno;
    if (call.is_counted && written >= 0)
        call.offset = offset < 0 ? syscall(SYS_lseek, descriptor, 0, SEEK_CUR) - written : offset;
    errno = error;
    DONE((ssize_t)written);
}

ssize_t read(int fd, void *data, size_t n) { struct iovec one = {data, n}; return read_parts(fd, &one, 1, -1); }
ssize_t pread(int fd, void *data, size_t n, off_t at) { struct iovec one = {data, n}; return read_parts(fd, &one, 1, at); }
ssize_t pread64(int fd, void *data, size_t n, off64_t at) { struct iovec one = {data, n}; return read_parts(fd, &one, 1, at); }
ssize_t readv(int fd, const struct iovec *parts, int n) { return read_parts(fd, parts, n, -1); }
ssize_t preadv(int fd, const struct iovec *parts, int n, off_t at) { return read_parts(fd, parts, n, at); }
ssize_t preadv64(int fd, const struct iovec *parts, int n, off64_t at) { return read_parts(fd, parts, n, at); }
ssize_t preadv2(int fd, const struct iovec *parts, int n, off_t at, int flags) { (void)flags; return read_parts(fd, parts, n, at); }
ssize_t preadv64v2(int fd, const struct iovec *parts, int n, off64_t at, int flags) { (void)flags; return read_parts(fd, parts, n, at); }
ssize_t write(int fd, const void *data, size_t n) { struct iovec one = {(void *)data, n}; return write_parts(fd, &one, 1, -1); }
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { struct iovec one = {(void *)data, n}; return write_parts(fd, &one, 1, at); }
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) { struct iovec one = {(void *)data, n}; return write_parts(fd, &one, 1, at); }
ssize_t writev(int fd, const struct iovec *parts, int n) { return write_parts(fd, parts, n, -1); }
ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t at) { return write_parts(fd, parts, n, at); }
ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t at) { return write_parts(fd, parts, n, at); }
ssize_t pwritev2(int fd, const struct iovec *parts, int n, off_t at, int flags) { (void)flags; return write_parts(fd, parts, n, at); }
ssize_t pwritev64v2(int fd, const struct iovec *parts, int n, off64_t at, int flags) { (void)flags; return write_parts(fd, parts, n, at); }

ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags)
{
    ON_DESCRIPTOR(COPY, to)
    if (control && control->with_data && call.is_counted) { errno = ENOSYS; DONE((ssize_t)-1); } /* traced as writes */
    DONE((ssize_t)syscall(SYS_copy_file_range, from, from_at, to, to_at, shortened(&call, count), flags));
}

ssize_t sendfile64(int to, int from, off64_t *offset, size_t count)
{
    ON_DESCRIPTOR(COPY, to)
    if (control && control->with_data && call.is_counted) { errno = ENOSYS; DONE((ssize_t)-1); }
    DONE((ssize_t)syscall(SYS_sendfile, to, from, offset, shortened(&call, count)));
}

ssize_t sendfile(int to, int from, off_t *offset, size_t count) { return sendfile64(to, from, offset, count); }

/* -- what changes a file or a folder ----------------------------------------------------------------------------- */

static int truncate_descriptor(int descriptor, int64_t length)
{
    ON_DESCRIPTOR(TRUNCATE, descriptor)
    call.length = length;
    DONE((int)syscall(SYS_ftruncate, descriptor, length));
}

static int truncate_path(const char *path, int64_t length)
{
    ON_PATH(TRUNCATE, AT_FDCWD, path)
    if (call.is_counted) call.inode = inode_of(AT_FDCWD, path);
    call.length = length;
    DONE((int)syscall(SYS_truncate, path, length));
}

int ftruncate(int fd, off_t length) { return truncate_descriptor(fd, length); }
int ftruncate64(int fd, off64_t length) { return truncate_descriptor(fd, length); }
int truncate(const char *path, off_t length) { return truncate_path(path, length); }
int truncate64(const char *path, off64_t length) { return truncate_path(path, length); }

int fsync(int fd) { ON_DESCRIPTOR(SYNC, fd) DONE((int)syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { ON_DESCRIPTOR(SYNC, fd) DONE((int)syscall(SYS_fdatasync, fd)); }
int syncfs(int fd) { ON_DESCRIPTOR(SYNC_ALL, fd) DONE((int)syscall(SYS_syncfs, fd)); }

/* The descriptor that a link of /proc stands for where it is followed, else -1. */
static int followed_descriptor(const char *path, unsigned flags)
{
    int descriptor;
    char rest;
    int is_link = flags & AT_SYMLINK_FOLLOW && path && sscanf(path, "/proc/self/fd/%d%c", &descriptor, &rest) == 1;
    return is_link ? descriptor : -1;
}

static int two_names(enum op op, int folder, const char *old, int other, const char *new, unsigned flags)
{
    struct call call = {.op = op};
    if (is_armed()) {
        int descriptor = followed_descriptor(old, flags);
        if (descriptor < 0) path_at(folder, old, call.path);
        else path_of_descriptor(descriptor, call.path);
        path_at(other, new, call.target);
        if (enter(&call)) { leave(&call, -1); return -1; }
        if (call.is_counted) call.inode = descriptor < 0 ? inode_of(folder, old) : inode_of(descriptor, NULL);
    }
    DONE((int)(op == RENAME ? syscall(SYS_renameat2, folder, old, other, new, flags)
                            : syscall(SYS_linkat, folder, old, other, new, flags)));
}

int rename(const char *old, const char *new) { return two_names(RENAME, AT_FDCWD, old, AT_FDCWD, new, 0); }
int renameat(int a, const char *old, int b, const char *new) { return two_names(RENAME, a, old, b, new, 0); }
int renameat2(int a, const char *old, int b, const char *new, unsigned flags) { return two_names(RENAME, a, old, b, new, flags); }
int link(const char *old, const char *new) { return two_names(LINK, AT_FDCWD, old, AT_FDCWD, new, 0); }
int linkat(int a, const char *old, int b, const char *new, int flags) { return two_names(LINK, a, old, b, new, (unsigned)flags); }

static int unlink_name(int folder, const char *path, int flags)
{
    ON_PATH(flags & AT_REMOVEDIR ? RMDIR : UNLINK, folder, path)
    if (call.is_counted) call.inode = inode_of(folder, path);
    DONE((int)syscall(SYS_unlinkat, folder, path, flags));
}

int unlink(const char *path) { return unlink_name(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return unlink_name(folder, path, flags); }
int rmdir(const char *path) { return unlink_name(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *path, mode_t mode)
{
    ON_PATH(MKDIR, folder, path)
    long answer = syscall(SYS_mkdirat, folder, path, mode);
    if (call.is_counted && !answer) call.inode = inode_of(folder, path);
    DONE((int)answer);
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int fchmod(int fd, mode_t mode) { ON_DESCRIPTOR(MODE, fd) DONE((int)syscall(SYS_fchmod, fd, mode)); }
int chmod(const char *path, mode_t mode) { ON_PATH(MODE, AT_FDCWD, path) DONE((int)syscall(SYS_fchmodat, AT_FDCWD, path, mode)); }
int fchmodat(int folder, const char *path, mode_t mode, int flags)
{
    REAL(fchmodat);
    ON_PATH(MODE, folder, path)
    DONE(real(folder, path, mode, flags));
}

int fchown(int fd, uid_t owner, gid_t group) { ON_DESCRIPTOR(OWNER, fd) DONE((int)syscall(SYS_fchown, fd, owner, group)); }
int fchownat(int folder, const char *path, uid_t owner, gid_t group, int flags)
{
    ON_PATH(OWNER, folder, path)
    DONE((int)syscall(SYS_fchownat, folder, path, owner, group, flags));
}
int chown(const char *path, uid_t owner, gid_t group) { return fchownat(AT_FDCWD, path, owner, group, 0); }
int lchown(const char *path, uid_t owner, gid_t group) { return fchownat(AT_FDCWD, path, owner, group, AT_SYMLINK_NOFOLLOW); }

int utimensat(int folder, const char *path, const struct timespec times[2], int flags)
{
    ON_PATH(TIMES, folder, path)
    DONE((int)syscall(SYS_utimensat, folder, path, times, flags));
}
int futimens(int fd, const struct timespec times[2]) { ON_DESCRIPTOR(TIMES, fd) DONE((int)syscall(SYS_utimensat, fd, NULL, times, 0)); }

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    ON_DESCRIPTOR(ALLOCATE, fd)
    call.offset = offset;
    call.length = length;
    DONE((int)syscall(SYS_fallocate, fd, mode, offset, length));
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) { return fallocate(fd, mode, offset, length); }
int posix_fallocate(int fd, off_t offset, off_t length)
{
    int error = errno, answer = fallocate(fd, 0, offset, length) ? errno : 0;
    errno = error;
    return answer;
}
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return posix_fallocate(fd, offset, length); }

/* -- what only looks ---------------------------------------------------------------------------------------------- */

static void *map(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
    struct call call = {.op = MMAP};
    if (fd >= 0 && is_armed()) {
        path_of_descriptor(fd, call.path);
        if (enter(&call)) { leave(&call, -1); return MAP_FAILED; }
    }
    void *mapped = (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
    leave(&call, mapped == MAP_FAILED ? -1 : 0);
    return mapped;
}

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) { return map(address, size, protection, flags, fd, offset); }
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) { return map(address, size, protection, flags, fd, offset); }

static int control_descriptor(int fd, int command, void *argument)
{
    if (command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW) {
        ON_DESCRIPTOR(LOCK, fd)
        DONE((int)syscall(SYS_fcntl, fd, command, argument));
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

#define FCNTL_BODY \
    va_list arguments; \
    va_start(arguments, command); \
    void *argument = va_arg(arguments, void *); \
    va_end(arguments); \
    return control_descriptor(fd, command, argument);

int fcntl(int fd, int command, ...) { FCNTL_BODY }
int fcntl64(int fd, int command, ...) { FCNTL_BODY }

int statvfs(const char *path, struct statvfs *into) { REAL(statvfs); ON_PATH(STATVFS, AT_FDCWD, path) DONE(real(path, into)); }
int statvfs64(const char *path, struct statvfs64 *into) { REAL(statvfs64); ON_PATH(STATVFS, AT_FDCWD, path) DONE(real(path, into)); }
int fstatvfs(int fd, struct statvfs *into) { REAL(fstatvfs); ON_DESCRIPTOR(STATVFS, fd) DONE(real(fd, into)); }
int fstatvfs64(int fd, struct statvfs64 *into) { REAL(fstatvfs64); ON_DESCRIPTOR(STATVFS, fd) DONE(real(fd, into)); }

int stat(const char *path, struct stat *into) { REAL(stat); ON_PATH(STAT, AT_FDCWD, path) DONE(real(path, into)); }
int stat64(const char *path, struct stat64 *into) { REAL(stat64); ON_PATH(STAT, AT_FDCWD, path) DONE(real(path, into)); }
int lstat(const char *path, struct stat *into) { REAL(lstat); ON_PATH(STAT, AT_FDCWD, path) DONE(real(path, into)); }
int lstat64(const char *path, struct stat64 *into) { REAL(lstat64); ON_PATH(STAT, AT_FDCWD, path) DONE(real(path, into)); }
int fstat(int fd, struct stat *into) { REAL(fstat); ON_DESCRIPTOR(STAT, fd) DONE(real(fd, into)); }
int fstat64(int fd, struct stat64 *into) { REAL(fstat64); ON_DESCRIPTOR(STAT, fd) DONE(real(fd, into)); }
int fstatat(int folder, const char *path, struct stat *into, int flags) { REAL(fstatat); ON_PATH(STAT, folder, path) DONE(real(folder, path, into, flags)); }
int fstatat64(int folder, const char *path, struct stat64 *into, int flags) { REAL(fstatat64); ON_PATH(STAT, folder, path) DONE(real(folder, path, into, flags)); }

int access(const char *path, int mode) { REAL(access); ON_PATH(STAT, AT_FDCWD, path) DONE(real(path, mode)); }
int faccessat(int folder, const char *path, int mode, int flags) { REAL(faccessat); ON_PATH(STAT, folder, path) DONE(real(folder, path, mode, flags)); }
int statfs(const char *path, struct statfs *into) { REAL(statfs); ON_PATH(STATVFS, AT_FDCWD, path) DONE(real(path, into)); }
int statfs64(const char *path, struct statfs64 *into) { REAL(statfs64); ON_PATH(STATVFS, AT_FDCWD, path) DONE(real(path, into)); }

ssize_t readlink(const char *path, char *into, size_t size)
{
    ON_PATH(READLINK, AT_FDCWD, path)
    DONE((ssize_t)syscall(SYS_readlinkat, AT_FDCWD, path, into, size));
}
ssize_t readlinkat(int folder, const char *path, char *into, size_t size)
{
    ON_PATH(READLINK, folder, path)
    DONE((ssize_t)syscall(SYS_readlinkat, folder, path, into, size));
}

DIR *opendir(const char *path)
{
    REAL(opendir);
    struct call call = {.op = OPENDIR};
    if (is_armed()) {
        path_at(AT_FDCWD, path, call.path);
        if (enter(&call)) { leave(&call, -1); return NULL; }
    }
    DIR *opened = real(path);
    leave(&call, opened ? 0 : -1);
    return opened;
}

struct dirent64 *readdir64(DIR *folder)
{
    REAL(readdir64);
    struct call call = {.op = READDIR};
    if (is_armed()) {
        path_of_descriptor(dirfd(folder), call.path);
        if (enter(&call)) { leave(&call, -1); return NULL; }
    }
    struct dirent64 *entry = real(folder);
    leave(&call, 0);
    return entry;
}

struct dirent *readdir(DIR *folder) { return (struct dirent *)readdir64(folder); }
