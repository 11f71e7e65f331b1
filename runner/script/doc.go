// SPDX-License-Identifier: Apache-2.0

// Package script executes Starlark scripts of a repository in child processes.
//
// A limit of interpreter steps bounds neither memory nor time: a script of 300 steps can double a list until it has two
// gigabytes. So each script runs in a process of its own, which has a memory limit, no network, no secrets, no environment
// and no files but two pipes. The interpreter offers a hostile
// script nothing else. The process has the user of its parent, so it is no wall against a defect of the interpreter itself.
//
// # The parent
//
// A Pool starts children when calls need them, and keeps up to four idle ones for a minute. A script that waits for its host
// leaves its slot to other scripts, and runs take turns (slotQueue):
//
//	pool, err := script.NewPool(script.Options{})
//	result, err := pool.Run(ctx, script.Call{
//		Run: runID, Digest: digest, Sources: project.ScriptFiles,
//		File: tool.File, Function: tool.Function, Args: arguments,
//		Owner: bundle.OwnerTool, Now: started, Seed: sha256.Sum256(…), Logs: script.MaxLogs,
//		Offers: func(name string) bool { … },
//	}, host)
//
// The sources travel to a child once for each digest. Result.Value is the JSON that the function returned, with the digits
// of its integers. Result.Context is the changed context of the run, Result.Stop and Result.Abort tell that the script
// called stop or abort. Logs are returned in any case. The caller subtracts them from the budget of the run.
//
// Errors of scripts are *Error: Message is for models, Detail for logs. A child that exceeds a limit, or that dies, fails
// its own call with runerror.ScriptLimit. Run returns an error of the host, or of the context, as it is.
//
// # The host
//
// Built-ins with effects ask the Host: bundle.Builtins lists them, and Call.Offers tells which ones the host handles. A
// build rejects the others by bundle.Project.RejectBuiltins. A Request has the arguments by name. Requests are numbered in a
// call, and a replayed script with the same Now and Seed and the same answers asks the same again. The host answers with a
// JSON value. An error made by Fail ends the script with a message that models see. Any other error ends the script, and
// Run returns it: this is how a host suspends a run.
//
// The host answers env and hmac.sha256 by Variables.Handle. The script has no text of a sensitive variable. Headers of
// requests can contain sensitive variables: decode them as Text and resolve them by Variables.Resolve.
//
// # The child
//
// A program that uses a Pool calls Main in a command named script, which gets the flag --memory.
package script
