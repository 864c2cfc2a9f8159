/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_VERBS_H
#define CLI_VERBS_H

/* The functions behind the rows of command.def. Each returns the exit status. */

struct cli;

int cmd_new(struct cli *c);		/* make.c */
int cmd_run(struct cli *c);		/* call.c */
int cmd_exec(struct cli *c);
int cmd_shell(struct cli *c);
int cmd_ls(struct cli *c);		/* show.c */
int cmd_info(struct cli *c);
int cmd_top(struct cli *c);		/* top.c */
int cmd_logs(struct cli *c);		/* logs.c */
int cmd_rename(struct cli *c);		/* life.c */
int cmd_start(struct cli *c);
int cmd_stop(struct cli *c);
int cmd_pause(struct cli *c);
int cmd_resume(struct cli *c);
int cmd_rm(struct cli *c);
int cmd_limits(struct cli *c);
int cmd_ttl(struct cli *c);
int cmd_cp(struct cli *c);		/* cp.c */
int cmd_template_create(struct cli *c);	/* template.c */
int cmd_template_ls(struct cli *c);
int cmd_template_info(struct cli *c);
int cmd_template_log(struct cli *c);
int cmd_template_cancel(struct cli *c);
int cmd_template_rm(struct cli *c);
int cmd_drill(struct cli *c);		/* drill.c */
int cmd_net_show(struct cli *c);		/* net.c */
int cmd_net_set(struct cli *c);
int cmd_net_why(struct cli *c);
int cmd_net_presets(struct cli *c);
int cmd_net_ask(struct cli *c);
int cmd_net_log(struct cli *c);		/* netlog.c */
int cmd_net_learn(struct cli *c);
int cmd_expose(struct cli *c);		/* expose.c */
int cmd_doctor(struct cli *c);		/* host.c */
int cmd_config(struct cli *c);
int cmd_version(struct cli *c);
int cmd_help(struct cli *c);		/* help.c */

#endif
