/*
 * A small SPANK plugin that enters a container as pyxis 0.24 does, for tests with the stand-in `enroot`.
 *
 * As the user, in task_init, before TaskProlog: the first task of a step on a node starts enroot, with the environment
 * of the job. Each task joins the namespaces of the container, and puts each variable of the container over the job's
 * own. A name of --container-env keeps the job's value: it becomes a line of `environ()` of a --conf file of enroot,
 * and is not put over the job's. The last task continues the process of the container, which then ends.
 *
 * The user sees no output of enroot and its hooks, unless the start fails or --container-entrypoint-log is used.
 * Without --container-entrypoint, /etc/rc.local of the image keeps /etc/rc from executing the ENTRYPOINT. The process
 * of the container is the child that executes enroot, because enroot only executes further programs.
 *
 * Behaviour that earlier versions of this plugin lacked, and its function in pyxis_slurmstepd.c of NVIDIA/pyxis:
 *   one start of enroot for all tasks of a step on a node            enroot_start_once(), enroot_stop_once()
 *   names with ENROOT_ are passed to enroot but for a fixed list     enroot_deny_env, try_import_env()
 *   output of enroot and its hooks is shown only after a failure     enroot_container_start(), enroot_print_log_ctx()
 *   /etc/rc.local of the image, which is never removed               enroot_create_start_config()
 *   the wait for the stop of the own child, of no other process      enroot_container_start()
 *   --container-env by a line of the --conf file, if it has a value  enroot_create_start_config()
 *   --container-env keeps an empty value of the job                  spank_import_container_env()
 *   LANG, LANGUAGE and LC_ALL of the job are not inherited           container_deny_env
 *   a step joins the namespaces of a named container that runs, with
 *   the variables and the directory of a container that it starts    slurm_spank_user_init(), enroot_start_once()
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis, 1)

static const char* image;
static const char* kept_names = "";
static int has_entrypoint;
static int shows_log;
static int is_named_container;

/* What the tasks of a step on a node share: user_init() maps it before the tasks are forked. */
static struct {
  pthread_mutex_t mutex;
  uint32_t started;
  uint32_t joined;
  pid_t container;
  pid_t running; /* a process of a named container whose namespaces the tasks join, or that of `container` */
} * shared;

/* Names that pyxis does not pass to enroot (pyxis_slurmstepd.c, enroot_deny_env). Other ENROOT_ names are passed. */
static const char* const not_passed[] = {
    "PATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_TASK_PID",
    "PMIX_RANK",
    "PMI_FD",
    "ENROOT_LIBRARY_PATH",
    "ENROOT_SYSCONF_PATH",
    "ENROOT_RUNTIME_PATH",
    "ENROOT_CACHE_PATH",
    "ENROOT_DATA_PATH",
    "ENROOT_TEMP_PATH",
    "ENROOT_ZSTD_OPTIONS",
    "ENROOT_TRANSFER_RETRIES",
    "ENROOT_CONNECT_TIMEOUT",
    "ENROOT_TRANSFER_TIMEOUT",
    "ENROOT_MAX_CONNECTIONS",
    "ENROOT_ALLOW_HTTP",
    NULL,
};
/* Variables of the job that a container does not inherit, unless --container-env names them. */
static const char* const not_kept[] = {"LANG", "LANGUAGE", "LC_ALL", NULL};

static int take_image(int value, const char* argument, int remote) {
  (void)value, (void)remote;
  image = strdup(argument);
  return 0;
}

static int take_names(int value, const char* argument, int remote) {
  (void)value, (void)remote;
  kept_names = strdup(argument);
  return 0;
}

static int take_flag(int value, const char* argument, int remote) {
  (void)argument, (void)remote;
  *(value == 0 ? &has_entrypoint : value == 1 ? &shows_log : &is_named_container) = 1;
  return 0;
}

static struct spank_option options[] = {
    {"container-image", "DIR", "root file system of the container", 1, 0, take_image},
    {"container-env", "NAMES", "names, separated by commas, whose value in the job wins", 1, 0, take_names},
    {"container-entrypoint", NULL, "execute the ENTRYPOINT of the image", 0, 0, take_flag},
    {"container-entrypoint-log", NULL, "show the output of enroot and of the ENTRYPOINT", 0, 1, take_flag},
    {"container-name", "NAME", "join a container of this image that runs; the name is not read", 1, 2, take_flag},
};

int slurm_spank_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    if (spank_option_register(spank, &options[i]) != ESPANK_SUCCESS) {
      return -1;
    }
  }
  return 0;
}

/* Whether a line NAME=value, or a name, is for this name of `length` characters. */
static int is_named(const char* line, const char* name, size_t length) {
  return strncmp(line, name, length) == 0 && (line[length] == '=' || line[length] == '\0');
}

static int is_kept(const char* line) {
  for (const char* name = kept_names; *name != '\0';) {
    size_t length = strcspn(name, ",");
    if (length > 0 && is_named(line, name, length)) {
      return 1;
    }
    name += length + (name[length] == ',');
  }
  return 0;
}

static void import_job_environment(char** environment) {
  clearenv();
  for (; *environment != NULL; environment++) {
    int passed = 1;
    for (const char* const* name = not_passed; *name != NULL; name++) {
      passed = passed && !is_named(*environment, *name, strlen(*name));
    }
    if (passed) {
      putenv(*environment);
    }
  }
  setenv("PATH", "/run/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
}

/* Writes the --conf file. Its function runs in enroot, which has the job's environment. */
static void write_conf(const char* path) {
  FILE* conf = fopen(path, "w");
  if (conf == NULL) {
    return;
  }
  fputs("environ() {\n  :\n", conf);
  for (const char* name = kept_names; *name != '\0';) {
    int length = (int)strcspn(name, ",");
    fprintf(conf, "  [ -z \"${%.*s-}\" ] || echo \"%.*s=${%.*s}\"\n", length, name, length, name, length, name);
    name += length + (name[length] == ',');
  }
  fputs("}\n", conf);
  if (!has_entrypoint) {
    fputs("hooks() {\n  echo 'exec \"$@\"' > ${ENROOT_ROOTFS}/etc/rc.local\n}\n", conf);
  }
  fclose(conf);
}

static void show_log(int log) {
  char text[4096];
  lseek(log, 0, SEEK_SET);
  for (ssize_t size; (size = read(log, text, sizeof text - 1)) > 0;) {
    text[size] = '\0';
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
      if (*line != '\0') {
        slurm_spank_log("pyxis:     %s", line);
      }
    }
  }
}

/* Starts enroot. Returns the process of the container, which has stopped itself inside, or -1. */
static pid_t start_container(char** environment) {
  char conf[64];
  snprintf(conf, sizeof conf, "/tmp/pyxis.%d.conf", (int)getpid());
  write_conf(conf);
  int log = memfd_create("enroot-log", MFD_CLOEXEC);
  pid_t child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    import_job_environment(environment);
    execlp("enroot", "enroot", "start", "--conf", conf, image, "sh", "-c", "kill -STOP $$ ; exit 0", NULL);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) {
    slurm_error("pyxis: enroot did not start the container: status %d", status);
    show_log(log);
    child = -1;
  } else if (has_entrypoint && shows_log) {
    show_log(log);
  }
  close(log);
  unlink(conf);
  return child;
}

/* Whether the process is in a container of this image: the root of its first mount point `/` is the directory, as
 * `enroot list --fancy` looks for it. */
static int is_in_image(const char* process) {
  char path[64], root[256], point[256];
  snprintf(path, sizeof path, "/proc/%s/mountinfo", process);
  FILE* mounts = fopen(path, "r");
  int found = 0;
  while (mounts != NULL && !found && fscanf(mounts, "%*s %*s %*s %255s %255s %*[^\n]", root, point) == 2) {
    found = strcmp(point, "/") == 0;
  }
  if (mounts != NULL) {
    fclose(mounts);
  }
  size_t length = strlen(image);
  return found && root[1] != '\0' && strlen(root) <= length && strcmp(image + length - strlen(root), root) == 0;
}

/* Returns a process of a container of this image that runs, or 0. */
static pid_t find_running(void) {
  DIR* processes = opendir("/proc");
  pid_t found = 0;
  for (struct dirent* entry; processes != NULL && found == 0 && (entry = readdir(processes)) != NULL;) {
    if (atoi(entry->d_name) > 0 && is_in_image(entry->d_name)) {
      found = atoi(entry->d_name);
    }
  }
  if (processes != NULL) {
    closedir(processes);
  }
  return found;
}

/* Starts the container in the first task, and returns its process in each task, or -1. */
static pid_t container_of_step(char** environment) {
  pthread_mutex_lock(&shared->mutex);
  if (shared->started++ == 0) {
    shared->running = is_named_container ? find_running() : 0;
    shared->container = start_container(environment);
    shared->running = shared->running != 0 ? shared->running : shared->container;
  }
  pid_t container = shared->container;
  pthread_mutex_unlock(&shared->mutex);
  return container;
}

/* Continues the process of the container, which ends, after the last task of this node has joined it. */
static void leave_container(spank_t spank) {
  uint32_t tasks = 1;
  spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks);
  pthread_mutex_lock(&shared->mutex);
  if (++shared->joined == tasks) {
    kill(shared->container, SIGCONT);
  }
  pthread_mutex_unlock(&shared->mutex);
}

static int open_of(pid_t process, const char* name, int flags) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
  return open(path, flags | O_CLOEXEC);
}

/* A process cannot join the user namespace that it is in. */
static int is_own(int user) {
  struct stat own, other;
  return stat("/proc/self/ns/user", &own) == 0 && fstat(user, &other) == 0 && own.st_ino == other.st_ino;
}

static int join(pid_t process) {
  int user = open_of(process, "ns/user", O_RDONLY), mounts = open_of(process, "ns/mnt", O_RDONLY);
  int root = open_of(process, "root", O_PATH | O_DIRECTORY);
  if (user < 0 || mounts < 0 || root < 0 || (!is_own(user) && setns(user, CLONE_NEWUSER) != 0) ||
      setns(mounts, CLONE_NEWNS) != 0 || fchdir(root) != 0 || chroot(".") != 0) {
    slurm_error("pyxis: cannot join the container: %m");
    return -1;
  }
  return chdir("/");
}

/* Puts the variables of the container over those of the job. file: its /proc/PID/environ. */
static void overwrite_environment(spank_t spank, int file) {
  for (const char* const* name = not_kept; *name != NULL; name++) {
    if (!is_kept(*name)) {
      spank_unsetenv(spank, *name);
    }
  }
  FILE* lines = fdopen(file, "r");
  char* line = NULL;
  size_t capacity = 0;
  while (lines != NULL && getdelim(&line, &capacity, '\0', lines) > 0) {
    char* value = strchr(line, '=');
    if (value != NULL && !is_kept(line)) {
      *value = '\0';
      spank_setenv(spank, line, value + 1, 1);
    }
  }
  free(line);
}

int slurm_spank_user_init(spank_t spank, int count, char** arguments) {
  (void)spank, (void)count, (void)arguments;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    return -1;
  }
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutex_init(&shared->mutex, &attributes);
  return 0;
}

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  char** environment = NULL;
  if (image == NULL) {
    return 0;
  }
  if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) {
    return -1;
  }
  pid_t container = container_of_step(environment);
  if (container < 0) {
    return -1;
  }
  int file = open_of(container, "environ", O_RDONLY);
  int result = join(shared->running);
  if (result == 0) {
    overwrite_environment(spank, file);
  }
  leave_container(spank);
  return result;
}
