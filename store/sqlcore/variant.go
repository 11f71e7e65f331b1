// SPDX-License-Identifier: Apache-2.0

package sqlcore

// SaidVariant is SQL for the A/B variant that executes a run, where the runner that holds it has
// said one: run is the row, said the name. The first that was said stays, and one counts only where
// the run's deployment has that variant of the run's agent.
func SaidVariant(run, said string) string {
	return `CASE WHEN ` + said + ` = '' OR ` + run + `.test_name <> '' THEN ` + run + `.test_name
		WHEN EXISTS (SELECT 1 FROM deployment_agents v WHERE v.project_id = ` + run + `.project_id AND v.deployment_id = ` + run + `.deployment_id
			AND v.variant_of = ` + run + `.agent_name AND v.test_name = ` + said + `) THEN ` + said + ` ELSE '' END`
}
