/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"
#include "cli/pages.h"
#include "lib/leak.h"

#define WORDS_MAX 40

/* A command line as one string, words separated by one blank; "" is an empty word in "a  b". */
struct line {
	char text[512];
	char *argv[WORDS_MAX + 1];
};

static char **cut(struct line *l, const char *s)
{
	size_t n = 0;
	char *p = l->text;

	assert_true(strlen(s) < sizeof(l->text));
	memcpy(l->text, s, strlen(s) + 1);
	if (*p)
		l->argv[n++] = p;
	for (; *p; p++)
		if (*p == ' ') {
			*p = '\0';
			assert_true(n < WORDS_MAX);
			l->argv[n++] = p + 1;
		}
	l->argv[n] = NULL;
	return l->argv;
}

/* What was understood, written down: "verb {names} [opt=val opt] |tail". */
static void spell(const struct args *a, char *ret, size_t n)
{
	OWN_BUF b = BUF_INIT(4096);

	(void)buf_puts(&b, a->cmd ? a->cmd->word : "-");
	for (size_t i = 0; i < a->nnames; i++)
		(void)buf_printf(&b, " {%s}", a->names[i]);
	for (size_t i = 0; i < a->nlist; i++)
		(void)buf_printf(&b, " %s=%s", options[a->list[i].opt].word, a->list[i].val);
	for (unsigned i = 0; i < OPT_COUNT; i++)
		if ((a->set & OPT_BIT << i) && !options[i].takes)
			(void)buf_printf(&b, " +%s", options[i].word);
	if (a->tail)
		(void)buf_puts(&b, " |");
	for (char **t = a->tail; t && *t; t++)
		(void)buf_printf(&b, " %s", *t);
	assert_int_equal(buf_error(&b), 0);
	(void)snprintf(ret, n, "%s", b.data);
}

static void good_lines(void **state)
{
	static const struct {
		const char *line, *means;
	} t[] = {
		{ "", "-" },
		{ "new", "new" },
		{ "new x", "new {x}" },
		{ "new x --memory 512M", "new {x} memory=512M" },
		{ "new --memory=512M x", "new {x} memory=512M" },
		{ "new -m 512M x", "new {x} memory=512M" },
		{ "new -m512M x", "new {x} memory=512M" },
		{ "new --memory= x", "new {x} memory=" },
		{ "new --memory -1 x", "new {x} memory=-1" },
		{ "new --env A=1 --env B --env A=2", "new env=A=1 env=B env=A=2" },
		{ "new -qeA=1", "new env=A=1 +quiet" },
		{ "new --allow-weaker --nesting x", "new {x} +nesting +allow-weaker" },
		{ "new -- -x", "new {-x}" },
		{ "new -- --help", "new {--help}" },
		{ "new -", "new {-}" },
		{ "--state-dir /s new x", "new {x} state-dir=/s" },
		{ "--run-dir=/r ls --json", "ls run-dir=/r +json" },
		{ "ls -a -q", "ls +quiet +all" },
		{ "ls -aq", "ls +quiet +all" },
		{ "rm -f a b c", "rm {a} {b} {c} +force" },
		{ "rm a -f b", "rm {a} {b} +force" },
		{ "logs -f -n 5 x", "logs {x} lines=5 +follow" },
		{ "template create d debian:trixie", "template create {d} {debian:trixie}" },
		{ "template ls --names", "template ls +names" },
		{ "exec x true", "exec {x} | true" },
		{ "exec x -- true", "exec {x} | true" },
		{ "exec x -- -weird", "exec {x} | -weird" },
		{ "exec x ls -la --json", "exec {x} | ls -la --json" },
		{ "exec x -- ls -- -la", "exec {x} | ls -- -la" },
		{ "exec x --user root -- id", "exec {x} user=root | id" },
		{ "exec -u root x id -u", "exec {x} user=root | id -u" },
		{ "exec -it x sh", "exec {x} +tty +interactive | sh" },
		{ "exec -- x true", "exec {x} | true" },
		{ "exec -- x -- true", "exec {x} | true" },
		{ "exec -- x --help", "exec {x} | --help" },
		{ "exec x  ", "exec {x} |  " },
		{ "run true", "run | true" },
		{ "run -- true", "run | true" },
		{ "run --keep --name x -- sh -c exit", "run name=x +keep | sh -c exit" },
		{ "run sh -c exit --keep", "run | sh -c exit --keep" },
		{ "new --help --nonsense", "new +help" },
		{ "-h", "- +help" },
		{ "template --help", "- +help" },
		{ "help exec", "help {exec}" },
		{ "help template rm", "help {template} {rm}" },
		{ "ttl x off --idle 5m", "ttl {x} {off} idle=5m" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct line l;
		struct args a;
		struct err e = ERR_INIT;
		char means[1024];

		if (args_parse(cut(&l, t[i].line), &a, &e) != 0)
			fail_msg("'%s': %s", t[i].line, e.text);
		spell(&a, means, sizeof(means));
		if (strcmp(means, t[i].means) != 0)
			fail_msg("'%s' means '%s', understood as '%s'", t[i].line, t[i].means, means);
		args_done(&a);
	}
}

static void bad_lines(void **state)
{
	static const struct {
		const char *line, *says;
	} t[] = {
		{ "nwe", "did you mean 'new'?" },
		{ "zzz", "there is no command 'zzz'; see `cubby help`" },
		{ "", NULL },
		{ "--json", "cubby has no option '--json'" },
		{ "new --memroy 1", "did you mean '--memory'?" },
		{ "new --zzzzz", "see `cubby help new`" },
		{ "new --memory", "'--memory' takes a value: --memory SIZE" },
		{ "new -m", "'--memory' takes a value" },
		{ "new --nesting=yes", "'--nesting' takes no value" },
		{ "new -Z", "cubby new has no option '-Z'" },
		{ "new -qZ", "no option '-Z'" },
		{ "new a b", "'b' is one too many: cubby new [NAME]" },
		{ "new -x", "no option '-x'" },
		{ "ls x", "'x' is one too many: cubby ls" },
		{ "rm", "something is missing: cubby rm BOX..." },
		{ "rename a", "something is missing" },
		{ "exec", "something is missing: cubby exec BOX" },
		{ "exec x", "something is missing" },
		{ "exec x --", "something is missing" },
		{ "exec -- x", "something is missing" },
		{ "exec -- x --", "something is missing" },
		{ "run", "something is missing" },
		{ "run --", "something is missing" },
		{ "shell x ls", "one too many" },
		{ "ls --memory 1", "cubby ls has no option '--memory'" },
		{ "exec x --detahc true", "did you mean '--detach'?" },
		{ "template", "needs another word" },
		{ "template crate x", "did you mean 'template create'?" },
		{ "template zzzz", "there is no command 'template zzzz'" },
		{ "--memory 1 new", "cubby has no option '--memory'" },
		{ "new --this-option-is-longer-than-any-that-there-is-in-the-table x", "no option" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		struct line l;
		struct args a;
		struct err e = ERR_INIT;

		if (!t[i].says)
			continue;
		if (args_parse(cut(&l, t[i].line), &a, &e) != -EINVAL)
			fail_msg("'%s' was accepted", t[i].line);
		if (!strstr(e.text, t[i].says))
			fail_msg("'%s' should say '%s', says '%s'", t[i].line, t[i].says, e.text);
		assert_int_equal(e.why, WHY_BAD_REQUEST);
		args_done(&a);
	}
}

/* Each row can be reached, and no command has two options with one letter or name. */
static void the_tables_hold_together(void **state)
{
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		char word[64], *second;
		opt_set all = commands[i].options | OPTS_GLOBAL;

		(void)snprintf(word, sizeof(word), "%s", commands[i].word);
		second = strchr(word, ' ');
		if (second)
			*second++ = '\0';
		assert_ptr_equal(command_find(word, second), &commands[i]);
		assert_non_null(commands[i].run);
		assert_true(commands[i].least <= commands[i].most);
		assert_false(commands[i].options & OPTS_GLOBAL);
		for (unsigned a = 0; a < OPT_COUNT; a++)
			for (unsigned b = a + 1; b < OPT_COUNT; b++) {
				if (!(all & OPT_BIT << a) || !(all & UINT64_C(1) << b))
					continue;
				if (options[a].letter && options[a].letter == options[b].letter)
					fail_msg("cubby %s: -%c is two options", commands[i].word, options[a].letter);
				assert_string_not_equal(options[a].word, options[b].word);
			}
	}
	/* Every option is of some use. */
	for (unsigned a = 0; a < OPT_COUNT; a++) {
		opt_set used = OPTS_GLOBAL;

		for (unsigned i = 0; i < CMD_COUNT; i++)
			used |= commands[i].options;
		if (!(used & OPT_BIT << a))
			fail_msg("no command takes --%s", options[a].word);
	}
	assert_true(command_is_group("template"));
	assert_false(command_is_group("new"));
	assert_null(command_find("ne", NULL));
	assert_null(command_find("template", "zzz"));
}

/* A line of options alone, then the JSON of the limits. */
static int limits_json(const char *line, struct buf *text, struct err *e)
{
	struct json_out o;
	struct line l;
	struct args a;
	int r;

	assert_int_equal(args_parse(cut(&l, line), &a, e), 0);
	json_out_init(&o, text);
	json_put_obj(&o, NULL);
	r = put_limits(&a, &o, e);
	json_end_obj(&o);
	args_done(&a);
	return r;
}

static void limit_values(void **state)
{
	static const struct {
		const char *line, *json, *says;
	} t[] = {
		{ "limits x", "{}", NULL },
		{ "limits x --memory 512M", "{\"memory\":536870912}", NULL },
		{ "limits x --memory 0", "{\"memory\":0}", NULL },
		{ "limits x --memory 2g --swap 1G", "{\"memory\":2147483648,\"swap\":1073741824}", NULL },
		{ "limits x --cpus 1.5 --cpu-weight 10000", "{\"cpu_weight\":10000,\"cpu_milli\":1500}", NULL },
		{ "limits x --pids 0", "{\"pids\":0}", NULL },
		{ "limits x --io-read 10M --io-write 0", "{\"io_read\":10485760,\"io_write\":0}", NULL },
		{ "limits x --memory 512", NULL, "did you mean 512M?" },
		{ "limits x --memory 512X", NULL, "'512X' is not a size" },
		{ "limits x --memory -1", NULL, "is not a size" },
		{ "limits x --memory=", NULL, "is not a size" },
		{ "limits x --swap 99999999999999999999", NULL, "is not a size" },
		{ "limits x --pids -5", NULL, "'-5' is not a number from 0 to 4194304" },
		{ "limits x --pids 5000000", NULL, "not a number from" },
		{ "limits x --pids 5k", NULL, "not a number from" },
		{ "limits x --cpu-weight 0", NULL, "not a number from 1 to 10000" },
		{ "limits x --cpus two", NULL, "not a number of processors" },
		{ "limits x --cpus 1.2345", NULL, "not a number of processors" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_BUF text = BUF_INIT(4096);
		struct err e = ERR_INIT;
		int r = limits_json(t[i].line, &text, &e);

		if (t[i].json) {
			assert_int_equal(r, 0);
			assert_string_equal(text.data, t[i].json);
		} else {
			assert_int_equal(r, -EINVAL);
			if (!strstr(e.text, t[i].says))
				fail_msg("'%s' should say '%s', says '%s'", t[i].line, t[i].says, e.text);
		}
	}
}

static void words_for_people(void **state)
{
	static const struct {
		char kind;
		uint64_t v;
		const char *text;
	} t[] = {
		{ 's', 0, "0 B" },
		{ 's', 1023, "1023 B" },
		{ 's', 1024, "1 KiB" },
		{ 's', 1536, "1.5 KiB" },
		{ 's', 512ull << 20, "512 MiB" },
		{ 's', 1024ull * 1024 - 1, "1023 KiB" },
		{ 's', 3ull << 29, "1.5 GiB" },
		{ 's', UINT64_MAX, "15.9 EiB" },
		{ 'd', 0, "0 ms" },
		{ 'd', 999, "999 ms" },
		{ 'd', 1000, "1 s" },
		{ 'd', 59999, "59 s" },
		{ 'd', 60000, "1 min" },
		{ 'd', 5400000, "1 h 30 min" },
		{ 'd', 7200000, "2 h" },
		{ 'd', 86400000ull * 3, "3 d" },
		{ 'c', 0, "0" },
		{ 'c', 500, "0.5" },
		{ 'c', 1250, "1.25" },
		{ 'c', 1, "0.001" },
		{ 'c', 2000, "2" },
	};

	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_BUF b = BUF_INIT(100);

		if (t[i].kind == 's')
			put_size(&b, t[i].v);
		else if (t[i].kind == 'd')
			put_duration(&b, t[i].v);
		else
			put_cpus(&b, t[i].v);
		assert_string_equal(b.data, t[i].text);
	}
}

static void a_table_is_aligned_and_escaped(void **state)
{
	OWN_TABLE t;
	OWN_BUF b = BUF_INIT(1000);

	table_init(&t, 2);
	table_cell(&t, "A");
	table_cell(&t, "B");
	table_cell(&t, "\033[31mred");
	table_cell(&t, "");
	table_cell(&t, "\xc3\xa4");	/* one column wide, two bytes */
	table_cell(&t, NULL);
	table_print(&t, &b);
	assert_string_equal(b.data, "A            B\n"
				    "\\x1b[31mred  -\n"
				    "\xc3\xa4            -\n");
}

static struct env given;	/* holds the texts that an environment borrows */

/* box NULL: the options alone. */
static int environment(const char *line, char *const *box, struct env *v, struct err *e)
{
	static struct line l;
	static struct args a;
	int r;

	memset(v, 0, sizeof(*v));
	assert_int_equal(args_parse(cut(&l, line), &a, e), 0);
	r = env_given(&a, &given, e);
	if (r == 0 && box)
		r = env_make(box, &given, v, e);
	args_done(&a);
	return r;
}

static void environment_done(struct env *v)
{
	env_done(v);
	env_done(&given);
}

static char *const none[] = { NULL };

static void only_the_named_environment_goes_in(void **state)
{
	char *const box[] = { (char *)"A=box", (char *)"B=box", (char *)"LANG=box", (char *)"=bad", NULL };
	struct env v;
	struct err e = ERR_INIT;

	assert_int_equal(clearenv(), 0);
	assert_int_equal(setenv("LANG", "C.UTF-8", 1), 0);
	assert_int_equal(setenv("LC_ALL", "C", 1), 0);
	assert_int_equal(setenv("TERM", "xterm", 1), 0);
	assert_int_equal(setenv("API_KEY", "secret", 1), 0);
	assert_int_equal(setenv("LANGUAGES", "no", 1), 0);
	assert_int_equal(setenv("PASSED", "yes", 1), 0);

	assert_int_equal(environment("exec x -e A=1 -e PASSED true", box, &v, &e), 0);
	assert_int_equal(v.n, 6);
	assert_string_equal(v.vars[0], "LANG=box");
	assert_string_equal(v.vars[1], "LC_ALL=C");
	assert_string_equal(v.vars[2], "TERM=xterm");
	assert_string_equal(v.vars[3], "A=1");
	assert_string_equal(v.vars[4], "B=box");
	assert_string_equal(v.vars[5], "PASSED=yes");
	assert_null(v.vars[6]);
	environment_done(&v);

	assert_int_equal(environment("new -e A=1", NULL, &v, &e), 0);
	assert_int_equal(given.n, 1);
	environment_done(&v);

	assert_int_equal(environment("exec x -e MISSING true", none, &v, &e), -EINVAL);
	assert_non_null(strstr(e.text, "MISSING"));
	environment_done(&v);
	assert_int_equal(environment("exec x -e =1 true", none, &v, &e), -EINVAL);
	environment_done(&v);
	assert_int_equal(environment("exec x --env-file /nonexistent true", none, &v, &e), -ENOENT);
	environment_done(&v);
}

static void env_files(void **state)
{
	static const char text[] = "# comment\n\nA=1 2 \r\nPASSED\nB=#not a comment\n";
	char path[200], line[300];
	struct env v;
	struct err e = ERR_INIT;
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/env", leak_dir());
	(void)snprintf(line, sizeof(line), "exec x --env-file %s -e B=2 true", path);
	assert_int_equal(clearenv(), 0);
	assert_int_equal(setenv("PASSED", "yes", 1), 0);
	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, sizeof(text) - 1, f), sizeof(text) - 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(environment(line, none, &v, &e), 0);
	assert_int_equal(v.n, 3);
	assert_string_equal(v.vars[0], "A=1 2 ");
	assert_string_equal(v.vars[1], "PASSED=yes");
	assert_string_equal(v.vars[2], "B=2");
	environment_done(&v);

	f = fopen(path, "we");
	assert_non_null(f);
	assert_int_equal(fputs("A=1\n2x=3\n", f) >= 0, 1);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(environment(line, none, &v, &e), -EINVAL);
	assert_non_null(strstr(e.text, "env:2:"));
	environment_done(&v);
	assert_int_equal(leak_dir_clear(), 0);
}

/* The specification's JSON for a line, descriptors closed. */
static int spec_json(const char *line, struct buf *text, size_t *ret_nfds, struct err *e)
{
	int fds[FD_PASS_MAX];
	struct json_out o;
	struct line l;
	struct args a;
	int r;

	*ret_nfds = 0;
	assert_int_equal(args_parse(cut(&l, line), &a, e), 0);
	json_out_init(&o, text);
	json_put_obj(&o, NULL);
	r = put_spec(&a, &o, fds, ret_nfds, e);
	json_end_obj(&o);
	for (size_t i = 0; i < *ret_nfds; i++)
		fd_close(&fds[i]);
	args_done(&a);
	return r;
}

static void specifications(void **state)
{
	static const struct {
		const char *line, *json;	/* json: "" for a failure */
		size_t nfds;
		const char *says;
	} t[] = {
		{ "new x", "{\"tz\":\"Europe/Berlin\"}", 0, NULL },
		{ "new x --net none --template debian",
		  "{\"net\":\"none\",\"template\":\"debian\",\"tz\":\"Europe/Berlin\"}", 0, NULL },
		{ "new x --net internet --lan 10.0.0.0/8:80 --net @npm --host-port 5432 --lan fd00::/8",
		  "{\"net\":\"internet,@npm\",\"net_more\":\"lan=10.0.0.0/8:80,host-port=5432,lan=fd00::/8\",\"tz\":\"Europe/Berlin\"}", 0,
		  NULL },
		{ "new x --lan 10.0.0.0/8 --connections 5 --connection-rate 6 --flows 0 --bandwidth 10M",
		  "{\"net_more\":\"lan=10.0.0.0/8\",\"limits\":{\"bandwidth\":10485760,\"connections\":5,\"connection_rate\":6,\"flows\":0},"
		  "\"tz\":\"Europe/Berlin\"}", 0, NULL },
		{ "new x --lan=", "", 0, "--lan: '' is not" },
		{ "new x --lan 10.0.0.0/8,internet", "", 0, "--lan: '10.0.0.0/8,internet' is not" },
		{ "new x --host-port 5,internet", "", 0, "--host-port: '5,internet' is not" },
		{ "new x --mount /usr", "{\"mounts\":[{\"at\":\"/usr\"}],\"tz\":\"Europe/Berlin\"}", 1, NULL },
		{ "new x --mount /usr/:ro", "{\"mounts\":[{\"at\":\"/usr\",\"ro\":true}],\"tz\":\"Europe/Berlin\"}", 1, NULL },
		{ "new x --mount /usr/../usr/./bin//:/x/:ro --mount /etc/passwd:/p",
		  "{\"mounts\":[{\"at\":\"/x\",\"ro\":true},{\"at\":\"/p\"}],\"tz\":\"Europe/Berlin\"}", 2, NULL },
		{ "new x --mount /usr/../usr/./bin//", "{\"mounts\":[{\"at\":\"/usr/bin\"}],\"tz\":\"Europe/Berlin\"}", 1, NULL },
		{ "new x --mount .", "{\"mounts\":[{\"at\":\"/\"}]}", 0, "would hide the whole box" },
		{ "new x --mount usr:/y:rw", "{\"mounts\":[{\"at\":\"/y\"}],\"tz\":\"Europe/Berlin\"}", 1, NULL },
		{ "new x --mount usr", "{\"mounts\":[{\"at\":\"/usr\"}],\"tz\":\"Europe/Berlin\"}", 1, NULL },
		{ "new x --mount /nonexistent", "", 0, "cannot open '/nonexistent'" },
		{ "new x --mount /dev/null", "", 0, "neither a directory nor a regular file" },
		{ "new x --mount /usr:/a/../b", "", 0, "leads through '..'" },
		{ "new x --mount /usr:/..", "", 0, "leads through '..'" },
		{ "new x --mount /usr:/", "", 0, "would hide the whole box" },
		{ "new x --mount=", "", 0, "SRC[:DST][:ro|:cow]" },
		{ "new x --workdir y", "", 0, "not an absolute path" },
		{ "new x --ttl 1x", "", 0, "is not a duration" },
		{ "new x --ttl 1h --idle off --user u --workdir /w --nesting",
		  "{\"user\":\"u\",\"workdir\":\"/w\",\"nesting\":true,\"ttl_ms\":3600000,\"idle_ms\":0,\"tz\":\"Europe/Berlin\"}", 0,
		  NULL },
	};

	assert_int_equal(setenv("TZ", ":Europe/Berlin", 1), 0);
	assert_int_equal(chdir("/"), 0);
	for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		OWN_BUF text = BUF_INIT(8192);
		struct err e = ERR_INIT;
		size_t nfds;
		int r = spec_json(t[i].line, &text, &nfds, &e);

		if (t[i].says) {
			assert_true(r < 0);
			if (!strstr(e.text, t[i].says))
				fail_msg("'%s' should say '%s', says '%s'", t[i].line, t[i].says, e.text);
			continue;
		}
		if (r != 0)
			fail_msg("'%s': %s", t[i].line, e.text);
		assert_string_equal(text.data, t[i].json);
		assert_int_equal(nfds, t[i].nfds);
	}
	/* A zone is a name, never a way out of the zone directory. */
	assert_int_equal(setenv("TZ", "../../etc/passwd", 1), 0);
	for (int once = 1; once; once--) {
		OWN_BUF text = BUF_INIT(8192);
		struct err e = ERR_INIT;
		size_t nfds;

		assert_int_equal(spec_json("new x", &text, &nfds, &e), 0);
		assert_null(strstr(text.data, "passwd"));
	}
	assert_int_equal(unsetenv("TZ"), 0);
}

/* Every command and option stands in every text that is made from the tables. */
static void pages_are_complete(void **state)
{
	static const char *const shells[] = { "bash", "zsh", "fish" };
	OWN_BUF man = BUF_INIT(1u << 20), conf = BUF_INIT(1u << 20);

	page_fill(&man, page_cubby_1);
	assert_int_equal(buf_error(&man), 0);
	assert_null(strchr(man.data, '@'));
	page_fill(&conf, "a @VERSION@ b\n@SETTINGS@\n");
	assert_non_null(strstr(conf.data, "a " CUBBY_VERSION " b\n"));
	assert_non_null(strstr(conf.data, "idle_exit"));
	for (unsigned i = 0; i < OPT_COUNT; i++) {
		for (size_t s = 0; s < 3; s++) {
			OWN_BUF b = BUF_INIT(1u << 20);

			assert_true(complete_script(&b, shells[s]));
			assert_int_equal(buf_error(&b), 0);
			assert_non_null(strstr(b.data, options[i].word));
		}
	}
	for (unsigned i = 0; i < CMD_COUNT; i++) {
		OWN_BUF b = BUF_INIT(1u << 20);
		char title[80];

		(void)snprintf(title, sizeof(title), ".SS \"cubby %s", commands[i].word);
		assert_non_null(strstr(man.data, title));
		page_command(&b, &commands[i]);
		assert_non_null(strstr(b.data, commands[i].what));
	}
	assert_false(complete_script(&conf, "csh"));
}

/* Each shell finds its script well-formed. */
static void completions_are_scripts(void **state)
{
	static const char *const shells[] = { "bash", "zsh", "fish" };

	for (size_t i = 0; i < 3; i++) {
		OWN_BUF b = BUF_INIT(1u << 20);
		int fds[2], status;
		pid_t pid;

		assert_true(complete_script(&b, shells[i]));
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			if (dup2(fds[0], 0) < 0)
				_exit(99);
			(void)execlp(shells[i], shells[i], "-n", "/dev/stdin", (char *)NULL);
			_exit(98);	/* not installed */
		}
		(void)close(fds[0]);
		/* A shell that isn't there reads nothing. */
		(void)signal(SIGPIPE, SIG_IGN);
		(void)fd_write_all(fds[1], b.data, b.len);
		(void)signal(SIGPIPE, SIG_DFL);
		(void)close(fds[1]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		if (WEXITSTATUS(status) == 98)
			print_message("# %s is not installed\n", shells[i]);
		else if (WEXITSTATUS(status) != 0)
			fail_msg("%s -n: %d", shells[i], WEXITSTATUS(status));
	}
}

#define LEAK_TEST(f) cmocka_unit_test_setup_teardown(f, leak_mark, leak_check)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEAK_TEST(good_lines),
		LEAK_TEST(bad_lines),
		LEAK_TEST(the_tables_hold_together),
		LEAK_TEST(limit_values),
		LEAK_TEST(words_for_people),
		LEAK_TEST(a_table_is_aligned_and_escaped),
		LEAK_TEST(only_the_named_environment_goes_in),
		LEAK_TEST(env_files),
		LEAK_TEST(specifications),
		LEAK_TEST(pages_are_complete),
		LEAK_TEST(completions_are_scripts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
