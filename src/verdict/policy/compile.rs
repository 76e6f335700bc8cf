//! The expressions of a policy, compiled once.

use crate::cel::{CompileError, Env, Program};
use crate::finding::Issue;
use crate::policy::expression_path;
use crate::policy::model::{NamedExpression, PolicySpec, Validation};
use crate::policy::request::SERVER_SET_FIELDS;
use crate::rules::policies as rules;
use napkeeper_api::field_path::Path;

/// The compiled expressions of a policy.
#[derive(Debug, Default)]
pub(crate) struct CompiledPolicy {
    /// Variables that all expressions may name; those of the policy itself last.
    pub(crate) env: Env,
    pub(crate) conditions: Vec<Program>,
    /// With their names in expressions, `variables.x`.
    pub(crate) variables: Vec<(String, Program)>,
    pub(crate) validations: Vec<CompiledValidation>,
    pub(crate) annotations: Vec<Program>,
}

/// One validation.
#[derive(Debug)]
pub(crate) struct CompiledValidation {
    pub(crate) program: Program,
    pub(crate) message: Option<Program>,
    /// The field that it checks.
    pub(crate) path: Path,
}

/// What every expression may name.
const VARIABLES: [&str; 12] = [
    "object",
    "oldObject",
    "request",
    "request.userInfo",
    "request.userInfo.uid",
    "request.userInfo.extra",
    "request.dryRun",
    "request.options",
    "request.name",
    "request.namespace",
    "namespaceObject",
    AUTHORIZER,
];

/// The variable for authorization checks; message expressions do not have it.
pub(crate) const AUTHORIZER: &str = "authorizer";

impl CompiledPolicy {
    /// Compiles the expressions of a policy; each error is an issue.
    pub(crate) fn of(spec: &PolicySpec) -> (Self, Vec<Issue>) {
        let mut wrong = Vec::new();
        let mut env = Env::new(VARIABLES.iter().chain(&SERVER_SET_FIELDS).copied());
        if spec.param_kind.is_some() {
            env.declare("params");
        }
        let conditions = programs(&spec.match_conditions, "spec.matchConditions", &env, &mut wrong);
        let mut of = Self { conditions, ..Self::default() };
        for (i, NamedExpression { name, expression }) in spec.variables.iter().enumerate() {
            let at = Path::from_dotted("spec.variables").index(i).key("expression");
            // A variable sees those above it.
            if let Some(program) = program(expression, &env, &at, &mut wrong) {
                let name = format!("variables.{name}");
                env.declare(name.clone());
                of.variables.push((name, program));
            }
        }
        for (i, validation) in spec.validations.iter().enumerate() {
            let at = Path::from_dotted("spec.validations").index(i);
            of.validations.extend(check(validation, spec, &env, &at, &mut wrong));
        }
        for (i, annotation) in spec.audit_annotations.iter().enumerate() {
            let at = Path::from_dotted("spec.auditAnnotations").index(i).key("valueExpression");
            of.annotations.extend(program(&annotation.value_expression, &env, &at, &mut wrong));
        }
        of.env = env;
        (of, wrong)
    }
}

fn check(
    validation: &Validation,
    spec: &PolicySpec,
    env: &Env,
    at: &Path,
    wrong: &mut Vec<Issue>,
) -> Option<CompiledValidation> {
    let message = validation.message_expression.as_deref().filter(|m| !m.trim().is_empty());
    let message = message.and_then(|m| program(m, env, &at.key("messageExpression"), wrong));
    let program = program(&validation.expression, env, &at.key("expression"), wrong)?;
    Some(CompiledValidation {
        program,
        message,
        path: expression_path::field_of(&validation.expression, &spec.variables),
    })
}

fn programs(list: &[NamedExpression], field: &str, env: &Env, wrong: &mut Vec<Issue>) -> Vec<Program> {
    let at = |i: usize| Path::from_dotted(field).index(i).key("expression");
    list.iter().enumerate().filter_map(|(i, named)| program(&named.expression, env, &at(i), wrong)).collect()
}

fn program(text: &str, env: &Env, at: &Path, wrong: &mut Vec<Issue>) -> Option<Program> {
    if text.trim().is_empty() {
        // Its absence is already reported.
        return None;
    }
    match Program::compile(text, env) {
        Ok(program) => Some(program),
        Err(CompileError(reason)) => {
            wrong.push(Issue::new(&rules::BROKEN, at, format!("the expression does not compile: {reason}")));
            None
        }
    }
}
