/*
 * A small SPANK plugin that enters a container as pyxis 0.24 does, for tests with the stand-in `enroot`.
 *
 * As the user, in task_init, before TaskProlog: starts enroot with the job's environment, joins the namespaces of the
 * container, and puts each variable of the container over the job's own. A name of --container-env keeps the job's
 * value: it becomes a line of `environ()` of a --conf file of enroot, and is not put over the job's.
 *
 * pyxis starts enroot once per step and node, and the other tasks of the node join. Here each task starts its own:
 * tests have one task per node. The process of the container is the child that executes enroot, because enroot only
 * executes further programs.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis, 1)

static const char* image;
static const char* kept_names = "";

/* Names that pyxis does not pass to enroot; nor names that begin with ENROOT_. */
static const char* const not_passed[] = {
    "PATH",           "LD_LIBRARY_PATH", "LD_PRELOAD", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_TASK_PID", "PMIX_RANK",       "PMI_FD",     NULL,
};

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

static struct spank_option options[] = {
    {"container-image", "DIR", "root file system of the container", 1, 0, take_image},
    {"container-env", "NAMES", "names, separated by commas, whose value in the job wins", 1, 0, take_names},
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
    int passed = strncmp(*environment, "ENROOT_", 7) != 0;
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
    fprintf(conf, "  [ -z \"${%.*s+x}\" ] || echo \"%.*s=${%.*s}\"\n", length, name, length, name, length, name);
    name += length + (name[length] == ',');
  }
  fputs("}\n", conf);
  fclose(conf);
}

/* Starts enroot. Returns the process of the container, which has stopped itself inside, or -1. */
static pid_t start_container(char** environment) {
  char conf[64];
  snprintf(conf, sizeof conf, "/tmp/pyxis.%d.conf", (int)getpid());
  write_conf(conf);
  pid_t child = fork();
  if (child == 0) {
    import_job_environment(environment);
    execlp("enroot", "enroot", "start", "--conf", conf, image, "sh", "-c", "kill -STOP $$; exec true", NULL);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) {
    slurm_error("pyxis: enroot did not start the container: status %d", status);
    child = -1;
  }
  unlink(conf);
  return child;
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

int slurm_spank_task_init(spank_t spank, int count, char** arguments) {
  (void)count, (void)arguments;
  char** environment = NULL;
  if (image == NULL) {
    return 0;
  }
  if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS) {
    return -1;
  }
  pid_t container = start_container(environment);
  if (container < 0) {
    return -1;
  }
  int file = open_of(container, "environ", O_RDONLY);
  int result = join(container);
  if (result == 0) {
    overwrite_environment(spank, file);
  }
  kill(container, SIGKILL);
  return result;
}
