//! `/v1/sessions/{id}`: what a candidate asks, and what it is told.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Request;
use primus_core::SessionId;
use primus_shapes::objects::{Object, complaint};
use primus_shapes::session::{AnswerBody, QuestionBody};

use crate::bodies;
use crate::context::Context;
use crate::limits::QUESTION_LEN_MAX;
use crate::problem::Problem;
use crate::proxy::Through;

pub(crate) async fn ask(
    State(context): State<Context>,
    Path(session): Path<String>,
    request: Request<Body>,
) -> Result<Json<AnswerBody>, Problem> {
    let at = Through::of(&request).unwrap_or(context.handle.id());
    let session = u64::from_str_radix(&session, 16).ok().filter(|id| *id != 0);
    let session =
        session.ok_or_else(|| Problem::usage("a session is a number in hex, and not 0", "choose one at random"))?;
    let body = bodies::read_question(request, QUESTION_LEN_MAX).await?;
    let Object(question) = serde_json::from_slice::<Object<QuestionBody>>(&body).map_err(|error| {
        let message = format!("this is not a question of a session: {}", complaint(&error));
        Problem::usage(message, "send {\"number\":1,\"wants\":[{\"group\":\"cron\",\"rank\":\"id\"}]}")
    })?;
    let poll = question.into_poll(at).map_err(|(message, hint)| Problem::usage(message, hint))?;
    let answer = context.handle.farm.poll(SessionId(session), poll).await?;
    Ok(Json(AnswerBody::new(answer, at, context.lease_us)))
}
